"""A page is turned when its own lines say so, and never by noise."""

from pagemill.pipelines import orientation
from pagemill.stages.wire import Recognized, Strip

CORNERS = ((0.0, 0.0), (9.0, 0.0), (9.0, 4.0), (0.0, 4.0))


def strips(*widths: int, tall: bool = False) -> list[Strip]:
    return [
        Strip(polygon=CORNERS, score=0.9, offset=0, width=w, text_width=w, tall=tall)
        for w in widths
    ]


def reads(confidence: float, text: str = "some text") -> list[Recognized]:
    return [Recognized(text=text, confidence=confidence)]


def test_longer_lines_weigh_more() -> None:
    lines = [*reads(1.0, "a" * 9), *reads(0.0, "b")]
    assert orientation.mean_confidence(lines) == 0.9


def test_nothing_read_is_no_confidence() -> None:
    assert orientation.mean_confidence(reads(0.9, "")) == 0.0


def test_a_page_without_lines_is_not_doubted() -> None:
    assert not orientation.is_doubtful([], [])


def test_a_page_that_reads_well_is_not_doubted() -> None:
    assert not orientation.is_doubtful(strips(100), reads(0.95))


def test_a_page_that_reads_badly_is_doubted() -> None:
    assert orientation.is_doubtful(strips(100), reads(0.6))


def test_a_page_on_its_side_is_doubted_however_well_it_reads() -> None:
    assert orientation.is_doubtful(strips(100, tall=True), reads(0.99))


def test_the_longest_lines_are_probed_in_page_order() -> None:
    assert orientation.probes(strips(5, 90, 80, 70, 1, 60, 50, 40)) == [1, 2, 3, 5, 6, 7]


def test_a_small_gain_turns_nothing() -> None:
    assert not orientation.prefers_flip(reads(0.80), reads(0.85))
    assert orientation.prefers_flip(reads(0.50), reads(0.95))


def test_turns_are_named_clockwise() -> None:
    flat, tall = strips(9), strips(9, tall=True)
    good = reads(0.95)
    assert orientation.page_turn(flat, good, flipped=False) == 0
    assert orientation.page_turn(flat, good, flipped=True) == 180
    assert orientation.page_turn(tall, good, flipped=False) == 270
    assert orientation.page_turn(tall, good, flipped=True) == 90


def test_vertical_writing_is_upright() -> None:
    assert orientation.page_turn(strips(9, tall=True), reads(0.95, "竖排文字"), flipped=False) == 0
