"""From the columns that a line's characters were read at to boxes around its words."""

from collections.abc import Sequence
from itertools import pairwise

from pagemill.documents.values import Point, Polygon, Word
from pagemill.pipelines.orientation import is_cjk


def words_of(
    text: str, columns: Sequence[tuple[float, float]], polygon: Polygon
) -> tuple[Word, ...]:
    """Cut a line into words.

    Args:
        text: the line, one character a column.
        columns: each character's centre, a fraction of the line's length in
            [0, 1], and its probability.
        polygon: the line's four corners, clockwise from where reading starts.

    """
    edges = _edges([centre for centre, _ in columns])
    return tuple(
        Word(
            text=text[start:end],
            confidence=sum(p for _, p in columns[start:end]) / (end - start),
            polygon=_slice(polygon, edges[start], edges[end]),
        )
        for start, end in _spans(text)
    )


def _spans(text: str) -> list[tuple[int, int]]:
    """Return half-open ranges: runs without a space, CJK characters alone."""
    spans: list[tuple[int, int]] = []
    for index, character in enumerate(text):
        if character.isspace():
            continue
        joins = (
            spans
            and spans[-1][1] == index
            and not is_cjk(character)
            and not is_cjk(text[index - 1])
        )
        if joins:
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
    return spans


def _edges(centres: Sequence[float]) -> list[float]:
    """Return where characters begin and end: half-way between their centres."""
    if not centres:
        return []
    between = [(left + right) / 2 for left, right in pairwise(centres)]
    first = centres[0] - (between[0] - centres[0]) if between else 0.0
    last = centres[-1] + (centres[-1] - between[-1]) if between else 1.0
    return [max(0.0, first), *between, min(1.0, last)]


def _slice(polygon: Polygon, start: float, end: float) -> Polygon:
    top_left, top_right, bottom_right, bottom_left = polygon
    return (
        _along(top_left, top_right, start),
        _along(top_left, top_right, end),
        _along(bottom_left, bottom_right, end),
        _along(bottom_left, bottom_right, start),
    )


def _along(origin: Point, target: Point, fraction: float) -> Point:
    return (
        origin[0] + (target[0] - origin[0]) * fraction,
        origin[1] + (target[1] - origin[1]) * fraction,
    )
