"""Which way up a page is, told from how its own lines read: pure decisions."""

from collections.abc import Sequence
from typing import Final

from pagemill.documents.values import Turn
from pagemill.stages.wire import Recognized, Strip

# Chosen, not measured: between what upright print reads at, above 0.9, and what it reads
# at upside down. A doubt costs a few lines more and turns nothing by itself.
DOUBTFUL: Final = 0.85
# A turned reading must be better by this much, so that noise never turns a page.
MARGIN: Final = 0.08
PROBES: Final = 6
# As PaddleOCR has it: its classifier is to be believed above this (cls_thresh).
FLIPPED: Final = 0.9
_CJK: Final = ((0x3040, 0x9FFF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF))


def mean_confidence(lines: Sequence[Recognized]) -> float:
    """Return the mean over characters; 0 when nothing was read."""
    characters = sum(len(line.text) for line in lines)
    if not characters:
        return 0.0
    return sum(line.confidence * len(line.text) for line in lines) / characters


def is_doubtful(strips: Sequence[Strip], lines: Sequence[Recognized]) -> bool:
    """Whether a few lines should be read turned: they read badly, or stand tall."""
    if not strips:
        return False
    return mean_confidence(lines) < DOUBTFUL or stands_tall(strips)


def stands_tall(strips: Sequence[Strip]) -> bool:
    """Whether most of the page's text, by length, runs down the page."""
    tall = sum(strip.text_width for strip in strips if strip.tall)
    return 2 * tall > sum(strip.text_width for strip in strips)


def probes(strips: Sequence[Strip]) -> list[int]:
    """Return the indices of the longest few strips, in page order."""
    longest = sorted(range(len(strips)), key=lambda i: (-strips[i].text_width, i))
    return sorted(longest[:PROBES])


def prefers_flip(upright: Sequence[Recognized], flipped: Sequence[Recognized]) -> bool:
    """Whether the same strips read better upside down."""
    return mean_confidence(flipped) > mean_confidence(upright) + MARGIN


def page_turn(strips: Sequence[Strip], lines: Sequence[Recognized], *, flipped: bool) -> Turn:
    """Return the clockwise angle that makes the page upright.

    `lines` are read as the page was finally read. Tall lines were turned a
    quarter counter-clockwise before reading, or clockwise when `flipped`; columns
    of vertical writing read badly that way, a page on its side reads well.
    """
    if not stands_tall(strips):
        return 180 if flipped else 0
    if flipped:
        return 90
    return 270 if mean_confidence(lines) >= DOUBTFUL and not _is_vertical_script(lines) else 0


def _is_vertical_script(lines: Sequence[Recognized]) -> bool:
    text = "".join(line.text for line in lines)
    return 2 * sum(map(is_cjk, text)) > len(text)


def is_cjk(character: str) -> bool:
    """Whether `character` is of a script written without spaces.

    Source: Unicode blocks Hiragana to CJK Unified Ideographs, compatibility
    ideographs, half- and full-width forms, and the supplementary planes 2 and 3.
    """
    code = ord(character)
    return any(first <= code <= last for first, last in _CJK)
