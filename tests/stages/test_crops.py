"""Strips cut out of pages."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.stages import crops


def box(x: float, y: float, width: float, height: float) -> NDArray[np.float32]:
    return np.array([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], np.float32)


def page_with(rows: slice, columns: slice) -> NDArray[np.uint8]:
    """Return a page whose area shades from red at its left to blue at its right."""
    page = np.full((300, 400, 3), 255, np.uint8)
    area = page[rows, columns]
    ramp = np.linspace(0, 255, area.shape[1]).astype(np.uint8)
    area[..., 0], area[..., 1], area[..., 2] = ramp[::-1], 0, ramp
    return page


def strip_of(page: NDArray[np.uint8], cutting: crops.Cutting) -> NDArray[np.uint8]:
    return crops.cut(page, [cutting]).reshape(48, cutting.width, 3)


@pytest.mark.parametrize(
    ("along", "down", "text_width", "width"),
    [(100, 24, 200, 208), (96, 48, 96, 96), (3, 48, 3, 16), (9000, 30, 3200, 3200)],
)
def test_widths_follow_from_the_box_alone(
    along: int, down: int, text_width: int, width: int
) -> None:
    cutting = crops.plan(box(0, 0, along, down), tall=False)
    assert (cutting.text_width, cutting.width) == (text_width, width)


def test_the_padding_is_grey_and_the_text_is_not_touched_by_it() -> None:
    page = np.zeros((48, 200, 3), np.uint8)
    cutting = crops.plan(box(0, 0, 100, 48), tall=False)
    strip = strip_of(page, cutting)
    assert (strip[:, :100] == 0).all()
    assert (strip[:, 100:] == crops.PADDING).all()


def test_a_straight_box_is_read_from_left_to_right() -> None:
    page = page_with(np.s_[100:148], np.s_[50:250])
    strip = strip_of(page, crops.plan(box(50, 100, 200, 48), tall=False))
    red, blue = (strip[24, [5, 194], channel].astype(int) for channel in (0, 2))
    assert red[0] > red[1] + 150
    assert blue[1] > blue[0] + 150


def test_a_tall_box_is_turned_a_quarter_counter_clockwise() -> None:
    upright = page_with(np.s_[100:148], np.s_[50:250])
    page = np.ascontiguousarray(np.rot90(upright, -1))  # clockwise: the text runs down
    height = upright.shape[0]
    corners = box(height - 148, 50, 48, 200)
    cutting = crops.plan(corners, tall=True)
    assert cutting.quad[0].tolist() == corners[1].tolist()  # reading starts top right
    expected = strip_of(upright, crops.plan(box(50, 100, 200, 48), tall=False))
    np.testing.assert_array_equal(strip_of(page, cutting), expected)


@pytest.mark.parametrize("tall", [False, True])
def test_a_leaning_box_is_set_upright(tall: bool) -> None:  # noqa: FBT001 - a parameter of the test
    upright = page_with(np.s_[100:148], np.s_[50:250])
    degrees = -80 if tall else 10
    matrix = cv2.getRotationMatrix2D((150.0, 124.0), degrees, 1.0)
    page = cv2.warpAffine(upright, matrix, (400, 300), borderValue=(255, 255, 255))
    corners = cv2.transform(box(50, 100, 200, 48)[None], matrix)[0].astype(np.float32)
    ordered = np.roll(corners, 1, axis=0) if tall else corners
    strip = strip_of(page.astype(np.uint8), crops.plan(ordered, tall=tall))
    expected = strip_of(upright, crops.plan(box(50, 100, 200, 48), tall=False))
    inner = np.s_[6:42, 8:192]
    difference = np.abs(strip[inner].astype(int) - expected[inner])
    assert difference.mean() < 4


def test_boxes_at_and_over_the_edge_are_cut_as_far_as_there_is_page() -> None:
    page = np.full((40, 60, 3), 9, np.uint8)
    for corners in (box(0, 0, 60, 40), box(59, 39, 1, 1), box(50, 30, 30, 30)):
        strip = strip_of(page, cutting := crops.plan(corners, tall=False))
        assert (strip[:, : cutting.text_width] == 9).all()


def test_strips_stand_one_after_the_other() -> None:
    page = np.zeros((100, 200, 3), np.uint8)
    page[50:] = 200
    cuttings = [crops.plan(box(0, y, 96, 48), tall=False) for y in (0, 52)]
    strips = crops.cut(page, cuttings)
    assert strips.size == sum(cutting.size for cutting in cuttings)
    assert set(np.unique(strips[: cuttings[0].size])) == {0}
    assert set(np.unique(strips[cuttings[0].size :])) == {200}


def test_a_leaning_line_far_down_a_long_strip_is_cut() -> None:
    page = np.full((40_000, 200, 3), 255, np.uint8)
    cv2.line(page, (20, 39_000), (180, 39_040), (0, 0, 0), 6)
    corners = np.array([(20, 38_990), (180, 39_030), (178, 39_050), (18, 39_010)], np.float32)
    cutting = crops.plan(corners, tall=False)
    strip = crops.cut(page, [cutting]).reshape(48, cutting.width, 3)
    assert strip[24, : cutting.text_width].mean() < 40  # the line runs along the middle
