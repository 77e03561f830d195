"""Documents as JSON, text and Markdown."""

import json
from dataclasses import replace

import pytest

from pagemill.documents import render
from pagemill.documents.values import Document, Line, Page
from tests.server.fakes import LINE, SQUARE


def page_of(*texts: str, index: int = 0) -> Page:
    lines = tuple(Line(text=text, confidence=1.0, polygon=SQUARE) for text in texts)
    return Page(index=index, width=40, height=20, turn=0, lines=lines, regions=())


def document_of(*pages: Page) -> Document:
    return Document(kind="pdf", total_pages=9, pages=pages)


def test_text_has_a_line_a_line_and_form_feeds_between_pages() -> None:
    document = document_of(page_of("a", "b"), page_of(), page_of("c"))
    assert render.to_text(document) == "a\nb\n\f\fc\n"
    assert render.to_text(document_of()) == ""


def test_markdown_keeps_lines_and_rules_off_pages() -> None:
    document = document_of(page_of("a", "b"), page_of(), page_of("c"))
    assert render.to_markdown(document) == "a  \nb\n\n---\n\n\n\n---\n\nc\n"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("plain, 5.00 - x", "plain, 5.00 - x"),
        ("# head", r"\# head"), ("## head", r"\## head"), ("#", r"\#"), ("#1", "#1"),
        ("- item", r"\- item"), ("+ item", r"\+ item"), ("* item", r"\* item"), ("-", r"\-"),
        ("-5.00", "-5.00"), ("---", r"\---"), ("- - -", r"\- - -"), ("===", r"\==="), ("=", r"\="),
        ("= 5", "= 5"), ("1. one", r"1\. one"), ("12) x", r"12\) x"), ("3.", r"3\."), ("3.50", "3.50"),
        ("1234567890. x", "1234567890. x"), ("2. *x*", r"2\. \*x\*"),
        ("a*b_c`d[e]<f>|~\\", r"a\*b\_c\`d\[e\]\<f\>\|\~\\"), ("> quote", r"\> quote"),
        ("&lt; & AT&T &#60;", r"\&lt; & AT&T \&#60;"), ("    code", "code"), ("\tcode ", "code"), ("", ""),
        ("合計 ¥1,000", "合計 ¥1,000"),
    ],
)  # fmt: skip
def test_text_stays_text_in_markdown(text: str, markdown: str) -> None:
    assert render.page_markdown(page_of(text)) == markdown


def test_coordinates_and_confidences_are_rounded_the_same_way_everywhere() -> None:
    polygon = ((0.04, 0.05), (1.249, 2.0), (3.0, 4.96), (-0.04, 5.0))
    line = replace(LINE, confidence=0.123456, polygon=polygon)
    record = render.page_record(replace(page_of(), lines=(line,)))["lines"][0]
    assert record["confidence"] == 0.12346
    assert record["polygon"] == [[0.0, 0.1], [1.2, 2.0], [3.0, 5.0], [-0.0, 5.0]]
    assert record["box"] == [-0.0, 0.1, 3.0, 5.0]


def test_json_is_one_line_with_pages_counted_from_one() -> None:
    text = render.to_json(document_of(page_of("a\nb", index=4)))
    assert "\n" not in text
    assert json.loads(text)["pages"][0]["page"] == 5
    assert json.loads(text)["total_pages"] == 9
