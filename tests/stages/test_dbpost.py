"""Boxes from probability maps."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.stages.dbpost import Thresholds, clockwise, find_boxes, merge
from pagemill.stages.subpixels import unshuffle
from pagemill.stages.wire import Tile

THRESHOLDS = Thresholds(pixel=0.3, box=0.5, unclip_ratio=1.6)


def bar(
    shape: tuple[int, int], rows: slice, columns: slice, *, value: int = 255
) -> NDArray[np.uint8]:
    probability = np.zeros(shape, np.uint8)
    probability[rows, columns] = value
    return probability


def test_a_bar_is_grown_by_its_area_over_its_perimeter() -> None:
    (box,) = find_boxes(bar((100, 200), np.s_[40:50], np.s_[50:150]), THRESHOLDS)
    # Dilation adds one pixel; contours run through pixels' middles: 100 x 10.
    grow = 100 * 10 * 1.6 / (2 * 110)
    left, top = box.corners[0]
    right, bottom = box.corners[2]
    assert (right - left, bottom - top) == pytest.approx((100 + 2 * grow, 10 + 2 * grow), abs=0.01)
    assert box.score > 0.8


def test_a_leaning_bar_leans_as_much_when_grown() -> None:
    probability = np.zeros((200, 300), np.uint8)
    corners = cv2.boxPoints(((150, 100), (160, 20), 15.0))
    cv2.fillPoly(probability, [corners.astype(np.int32)], 255)
    (box,) = find_boxes(probability, THRESHOLDS)
    across, down = box.corners[1] - box.corners[0]
    assert np.degrees(np.arctan2(down, across)) == pytest.approx(15, abs=1)


@pytest.mark.parametrize(
    "probability",
    [
        np.zeros((64, 64), np.uint8),
        bar((64, 64), np.s_[10:11], np.s_[10:11]),  # a speck
        bar((64, 64), np.s_[10:20], np.s_[10:50], value=76),  # 0.298 < 0.3
        bar((64, 64), np.s_[10:20], np.s_[10:50], value=100),  # its mean is below 0.5
    ],
)
def test_nothing_is_found_where_nothing_is(probability: NDArray[np.uint8]) -> None:
    assert find_boxes(probability, THRESHOLDS) == []


@pytest.mark.parametrize("angle", [0, 10, -10, 44])
def test_corners_start_at_the_top_left_and_go_clockwise(angle: float) -> None:
    corners = cv2.boxPoints(((100, 100), (80, 20), angle)).astype(np.float32)
    for turn in range(4):
        top_left, top_right, bottom_right, bottom_left = clockwise(np.roll(corners, turn, axis=0))
        assert np.linalg.norm(top_right - top_left) == pytest.approx(80, abs=0.01)
        assert top_left[0] < top_right[0]
        assert bottom_left[1] > top_left[1]
        assert bottom_right[0] > bottom_left[0]


def test_a_seam_is_at_the_middle_of_an_overlap() -> None:
    tiles = (Tile(x=0, y=0, width=32, height=96), Tile(x=0, y=32, width=32, height=96))
    upper, lower = np.full((96, 32), 1, np.uint8), np.full((96, 32), 2, np.uint8)
    whole = merge([upper, lower], tiles)
    assert whole.shape == (128, 32)
    assert (whole[:64] == 1).all()
    assert (whole[64:] == 2).all()


def test_a_map_cut_into_a_grid_merges_into_itself() -> None:
    random = np.random.default_rng(1)
    whole = random.integers(0, 256, (224, 320), np.uint8)
    tiles = tuple(
        Tile(x=x, y=y, width=width, height=128)
        for y in (0, 96)
        for x, width in ((0, 128), (96, 128), (192, 128))
    )
    parts = [whole[t.y : t.y + t.height, t.x : t.x + t.width] for t in tiles]
    np.testing.assert_array_equal(merge(parts, tiles), whole)


def test_subpixels_go_back_to_their_places() -> None:
    whole = np.arange(8 * 12, dtype=np.uint8).reshape(8, 12)
    split = whole.reshape(2, 2, 2, 3, 2, 2)  # y, its two doublings, x, its two
    channels = split.transpose(1, 4, 2, 5, 0, 3).reshape(16, 2, 3)
    np.testing.assert_array_equal(unshuffle(channels), whole)
