"""Words are cut where spaces and scripts say, and stand where their characters do."""

import pytest

from pagemill.pipelines.words import words_of

SQUARE = ((0.0, 0.0), (100.0, 0.0), (100.0, 10.0), (0.0, 10.0))


def columns(*centres: float) -> list[tuple[float, float]]:
    return [(centre, 0.9) for centre in centres]


def test_a_space_ends_a_word() -> None:
    words = words_of("ab cd", columns(0.1, 0.3, 0.5, 0.7, 0.9), SQUARE)
    assert [word.text for word in words] == ["ab", "cd"]
    assert words[0].polygon == ((0.0, 0.0), (40.0, 0.0), (40.0, 10.0), (0.0, 10.0))
    assert [x for x, _ in words[1].polygon] == pytest.approx([60, 100, 100, 60])


def test_cjk_characters_stand_alone() -> None:
    words = words_of("发票No", columns(0.1, 0.3, 0.6, 0.8), SQUARE)
    assert [word.text for word in words] == ["发", "票", "No"]


def test_a_lone_character_has_the_whole_line() -> None:
    (word,) = words_of("7", columns(0.4), SQUARE)
    assert word.polygon == SQUARE
    assert word.confidence == pytest.approx(0.9)


def test_no_text_has_no_words() -> None:
    assert words_of("", [], SQUARE) == ()


def test_words_follow_a_slanted_line() -> None:
    slanted = ((0.0, 0.0), (100.0, 100.0), (90.0, 110.0), (-10.0, 10.0))
    first, _ = words_of("a b", columns(0.25, 0.5, 0.75), slanted)
    assert first.polygon[1] == pytest.approx((37.5, 37.5))
