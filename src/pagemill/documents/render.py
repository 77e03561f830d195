"""Documents as JSON, plain text and Markdown: the same document, the same bytes."""

import re
from typing import Any, Final

import msgspec

from pagemill.documents.values import Document, Line, Page, Polygon, bounding_box

_PAGE_BREAK: Final = "\f"
# What is markup wherever it stands, an entity, and what starts or underlines a block.
_INLINE: Final = re.compile(r"[\\`*_\[\]<>|~]|&(?=#?\w+;)")
_BLOCK: Final = re.compile(r"(?:#{1,6}|[+-])(?=\s|$)|[-=](?=[-=\s]*$)|(\d{1,9})(?=[.)](?:\s|$))")
_encode: Final = msgspec.json.Encoder().encode


def page_record(page: Page) -> dict[str, Any]:
    """Return a page as JSON types; `page` counts from 1, coordinates are in 0.1 pixels."""
    return {
        "page": page.index + 1,
        "width": page.width,
        "height": page.height,
        "turn": page.turn,
        "lines": [_line_record(line) for line in page.lines],
    }


def document_record(document: Document) -> dict[str, Any]:
    """Return a document as JSON types."""
    return {
        "kind": document.kind,
        "total_pages": document.total_pages,
        "pages": [page_record(page) for page in document.pages],
    }


def _line_record(line: Line) -> dict[str, Any]:
    record: dict[str, Any] = {
        "text": line.text,
        "confidence": round(line.confidence, 5),
        "polygon": rounded(line.polygon),
        "box": [round(value, 1) for value in bounding_box(line.polygon)],
    }
    if line.words is not None:
        record["words"] = [
            {
                "text": word.text,
                "confidence": round(word.confidence, 5),
                "polygon": rounded(word.polygon),
            }
            for word in line.words
        ]
    return record


def rounded(polygon: Polygon) -> list[list[float]]:
    """Return a polygon's points to a tenth of a pixel."""
    return [[round(x, 1), round(y, 1)] for x, y in polygon]


def to_json(document: Document) -> str:
    """Return one line of JSON."""
    return _encode(document_record(document)).decode()


def page_text(page: Page) -> str:
    """Return a page's lines, one a line of text."""
    return "".join(f"{line.text}\n" for line in page.lines)


def to_text(document: Document) -> str:
    """Return the pages' text, form feeds between them."""
    return _PAGE_BREAK.join(page_text(page) for page in document.pages)


def page_markdown(page: Page) -> str:
    """Return a page's lines as Markdown, each kept a line of its own."""
    return "  \n".join(_escaped(line.text) for line in page.lines)


def to_markdown(document: Document) -> str:
    """Return the pages as Markdown, rules between them."""
    return "\n\n---\n\n".join(page_markdown(page) for page in document.pages) + "\n"


def _escaped(text: str) -> str:
    text = text.strip()  # four spaces would make it code
    start = _BLOCK.match(text)
    digits = (start and start[1]) or ""  # "1." becomes "1\.": digits cannot be escaped
    rest = _INLINE.sub(r"\\\g<0>", text[len(digits) :])
    return f"{digits}\\{rest}" if start else rest
