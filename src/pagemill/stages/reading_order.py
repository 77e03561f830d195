"""Pure: in which order the lines of a page are read."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

TALL: Final = 1.5  # a line this many times higher than wide runs down the page
_SAME_ROW: Final = 0.5  # of the lower line's height, between two centres of one row


def is_tall(corners: NDArray[np.float32]) -> bool:
    """Whether a box (clockwise from the top left) holds a line that runs down the page."""
    along, down = _sides(corners)
    return down >= TALL * along


def reading_order(boxes: Sequence[NDArray[np.float32]]) -> list[int]:
    """Return the boxes' indices: rows from the top, each from the left.

    When most text runs down the page: columns from the right, each from the top.
    Rows are told apart after the page's skew, the median of its lines', is undone.
    """
    if not boxes:
        return []
    corners = np.stack(boxes).astype(np.float64)
    lengths = np.array([max(_sides(box)) for box in boxes])
    tall = np.array([is_tall(box) for box in boxes])
    down = 2 * lengths[tall].sum() > lengths.sum()
    if down:  # as if the page were turned a quarter counter-clockwise
        corners = np.stack([corners[..., 1], -corners[..., 0]], axis=-1)[:, [1, 2, 3, 0]]
    skew = _skew(corners, lengths, tall == down)
    centres = corners.mean(axis=1)
    along = centres[:, 0] * np.cos(skew) + centres[:, 1] * np.sin(skew)
    across = centres[:, 1] * np.cos(skew) - centres[:, 0] * np.sin(skew)
    heights = np.array([min(_sides(box)) for box in corners])
    return _rows(along, across, heights)


def _rows(
    along: NDArray[np.float64], across: NDArray[np.float64], heights: NDArray[np.float64]
) -> list[int]:
    order: list[int] = []
    row: list[int] = []
    for index in np.argsort(across, kind="stable").tolist():
        if row and not _same_row(row, index, across, heights):
            order += sorted(row, key=lambda i: (along[i], i))
            row = []
        row.append(index)
    return order + sorted(row, key=lambda i: (along[i], i))


def _same_row(
    row: list[int], index: int, across: NDArray[np.float64], heights: NDArray[np.float64]
) -> bool:
    """Compare with the row's mean, so that a row cannot creep down the page."""
    distance = across[index] - across[row].mean()
    return bool(distance < _SAME_ROW * min(heights[index], heights[row].min()))


def _skew(
    corners: NDArray[np.float64], lengths: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> float:
    """Return the weighted median angle of the lines that run the page's way, in radians."""
    if not chosen.any():
        return 0.0
    edges = corners[chosen, 1] - corners[chosen, 0]
    angles = np.arctan2(edges[:, 1], edges[:, 0])
    by_angle = np.argsort(angles, kind="stable")
    weights = np.cumsum(lengths[chosen][by_angle])
    return float(angles[by_angle][np.searchsorted(weights, weights[-1] / 2)])


def _sides(corners: NDArray[np.floating]) -> tuple[float, float]:
    """Return a box's length along its top and down its left side."""
    top, side = corners[1] - corners[0], corners[3] - corners[0]
    return float(np.hypot(*top)), float(np.hypot(*side))
