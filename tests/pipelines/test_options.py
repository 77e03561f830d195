"""Page ranges are read as people write them, and bounded."""

import pytest

from pagemill.errors import BadOption
from pagemill.pipelines.options import parse_pages


@pytest.mark.parametrize(
    ("text", "pages"),
    [("1", (0,)), ("1-3", (0, 1, 2)), ("3, 1-2", (0, 1, 2)), ("2,2-2", (1,)), ("7,1", (0, 6))],
)
def test_pages_count_from_one(text: str, pages: tuple[int, ...]) -> None:
    assert parse_pages(text) == pages


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "3-1", "a", "1-", "1--2", "1,,2", "²", "1-999999999999", "1-999999"]
)
def test_anything_else_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption, match="pages"):
        parse_pages(text)
