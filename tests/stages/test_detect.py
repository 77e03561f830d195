"""The detector, with its real weights."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.engine.stage import Stage
from pagemill.errors import Defect
from pagemill.stages import detect, known
from pagemill.stages.wire import Detect, Detected, Tile
from tests.stages.running import answers, item


@pytest.fixture(scope="module")
def stage() -> Stage:
    return detect.load({})


def find(stage: Stage, image: NDArray[np.uint8], *tiles: Tile) -> list[NDArray[np.uint8]]:
    height, width, _ = image.shape
    items = [item(Detect(det_width=width, det_height=height, tile=tile), image) for tile in tiles]
    return [
        buffers[0].reshape(tile.height, tile.width)
        for tile, (_, buffers) in zip(tiles, answers(stage, Detected, *items), strict=True)
    ]


def test_a_tile_is_read_at_its_place(stage: Stage) -> None:
    page = known.page()
    image = np.full((320, 384, 3), 255, np.uint8)
    image[160:, 192:] = page
    at, elsewhere = Tile(x=192, y=160, width=192, height=160), Tile(x=0, y=0, width=192, height=160)
    (alone,) = find(stage, page, Tile(x=0, y=0, width=192, height=160))
    found, nothing = find(stage, image, at, elsewhere)
    np.testing.assert_array_equal(found, alone)
    assert (alone > 128).any()
    assert not (nothing > 76).any()


def test_the_stage_knows_its_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.check()
    monkeypatch.setattr(known, "page", lambda: np.full((160, 192, 3), 255, np.uint8))
    with pytest.raises(Defect, match="known page"):
        stage.check()


def test_the_stage_says_how_it_runs(stage: Stage) -> None:
    facts = getattr(stage, "facts", {})
    assert facts["runtime"].startswith("openvino ")
    assert facts["precision"] in ("f32", "bf16", "f16")
