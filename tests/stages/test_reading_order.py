"""The order in which lines are read."""

import numpy as np
from numpy.typing import NDArray

from pagemill.stages.reading_order import is_tall, reading_order


def box(x: float, y: float, width: float, height: float) -> NDArray[np.float32]:
    return np.array([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], np.float32)


def turned(boxes: list[NDArray[np.float32]], degrees: float) -> list[NDArray[np.float32]]:
    angle = np.radians(degrees)
    matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return [(each @ matrix).astype(np.float32) for each in boxes]


def test_rows_are_read_from_the_top_and_from_the_left() -> None:
    boxes = [box(200, 12, 80, 20), box(10, 40, 100, 20), box(10, 10, 100, 20)]
    assert reading_order(boxes) == [2, 0, 1]


def test_a_skewed_page_is_read_in_the_same_order() -> None:
    rows = [box(x, y, 90, 12) for y in range(0, 200, 16) for x in (0, 300, 600)]
    shuffled = np.random.default_rng(3).permutation(len(rows)).tolist()
    for degrees in (0, 3, -3, 8):
        order = reading_order([turned(rows, degrees)[i] for i in shuffled])
        assert [shuffled[i] for i in order] == list(range(len(rows))), degrees


def test_columns_of_a_page_that_stands_tall_are_read_from_the_right() -> None:
    boxes = [
        box(10, 10, 20, 200),
        box(110, 10, 20, 90),
        box(110, 120, 20, 90),
        box(60, 10, 20, 200),
    ]
    assert reading_order(boxes) == [1, 2, 3, 0]


def test_a_lone_tall_box_does_not_turn_the_page() -> None:
    boxes = [box(100, 0, 20, 80), box(0, 0, 90, 20), box(0, 30, 90, 20)]
    assert reading_order(boxes)[0] == 1


def test_no_boxes_have_no_order() -> None:
    assert reading_order([]) == []


def test_tall_begins_at_one_and_a_half() -> None:
    assert is_tall(box(0, 0, 20, 30))
    assert not is_tall(box(0, 0, 20, 29))
