"""The recogniser, with its real weights."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.engine.stage import Stage
from pagemill.errors import Defect
from pagemill.stages import known, line_angle, recognize
from pagemill.stages.wire import LineAngle, LineAngled, Recognize, Recognized
from tests.stages.running import answers, item


@pytest.fixture(scope="module", params=["openvino", "onnxruntime"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return recognize.load({"runtime": request.param})


def padded(strip: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.pad(strip, ((0, 0), (0, 16), (0, 0)), constant_values=127)


def read(stage: Stage, strips: NDArray[np.uint8], *asked: Recognize) -> list[Recognized]:
    return [reply for each in asked for reply, _ in answers(stage, Recognized, item(each, strips))]


def test_a_strip_is_read_wherever_it_stands_in_the_buffer(stage: Stage) -> None:
    strip = known.line()
    strips = np.concatenate([np.zeros(300, np.uint8), strip.reshape(-1)])
    (found,) = read(stage, strips, Recognize(offset=300, width=128, text_width=128))
    assert found.text == known.TEXT
    assert 0.8 < found.confidence <= 1
    assert found.columns is None


def test_a_flipped_strip_is_read_upside_down_and_its_padding_stays(stage: Stage) -> None:
    upright = padded(known.line())
    over = upright.copy()
    over[:, :128] = upright[::-1, :128][:, ::-1]
    asked = Recognize(offset=0, width=144, text_width=128)
    flipped = Recognize(offset=0, width=144, text_width=128, flip=True)
    assert read(stage, over, flipped) == read(stage, upright, asked)


def test_columns_say_where_each_character_stands(stage: Stage) -> None:
    asked = Recognize(offset=0, width=144, text_width=128, columns=True)
    (found,) = read(stage, padded(known.line()), asked)
    assert found.columns is not None
    centres = [centre for centre, _ in found.columns]
    assert len(centres) == len(found.text)
    assert centres == sorted(centres)
    assert 0 < centres[0] < 0.35
    assert 0.65 < centres[-1] <= 1


def test_lines_of_equal_width_read_together_as_they_do_alone(stage: Stage) -> None:
    strips = np.concatenate([known.line().reshape(-1), np.full(48 * 128 * 3, 255, np.uint8)])
    asked = [Recognize(offset=offset, width=128, text_width=128) for offset in (0, 48 * 128 * 3)]
    together = answers(stage, Recognized, *[item(each, strips) for each in asked])
    alone = read(stage, strips, *asked)
    assert [reply.text for reply, _ in together] == [each.text for each in alone]
    assert alone[1] == Recognized(text="", confidence=0.0)


def test_the_stage_knows_its_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.check()
    monkeypatch.setattr(known, "line", lambda: np.full((48, 128, 3), 255, np.uint8))
    with pytest.raises(Defect, match="as '', not '2026'"):
        stage.check()


def test_the_line_angle_is_told_even_of_a_long_line() -> None:
    stage = line_angle.load({})
    stage.check()
    strip = np.concatenate([known.line()] * 2, axis=1)
    turned = np.ascontiguousarray(strip[::-1, ::-1])
    asked = LineAngle(offset=0, width=256, text_width=256)
    (upright, _), (over, _) = answers(stage, LineAngled, item(asked, strip), item(asked, turned))
    assert upright.flipped < 0.5 < over.flipped
