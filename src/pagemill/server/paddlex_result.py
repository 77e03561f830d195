"""Documents in the shape that PaddleX's `POST /ocr` answers with, key by key."""

from base64 import b64encode
from typing import Any

from pagemill.documents.values import Document, Line, Page, Polygon, bounding_box
from pagemill.pipelines.options import OcrOptions


def ocr_result(document: Document, options: OcrOptions) -> dict[str, Any]:
    """Return `result` of the contract; pages that were not drawn have no pictures."""
    results = [
        {"prunedResult": pruned_result(page, options), **_pictures(page)} for page in document.pages
    ]
    return {"ocrResults": results, "dataInfo": data_info(document)}


def _pictures(page: Page) -> dict[str, str]:
    if page.pictures is None:
        return {}
    named = {"ocrImage": page.pictures.outlined, "inputImage": page.pictures.plain}
    return {name: b64encode(picture).decode() for name, picture in named.items()}


def data_info(document: Document) -> dict[str, Any]:
    """Return `dataInfo`: what was read, its sizes in pixels (PDF: at 144 dpi)."""
    sizes = [{"width": page.width, "height": page.height} for page in document.pages]
    if document.kind == "image":
        return {**sizes[0], "type": "image"} if sizes else {"type": "image"}
    return {"numPages": len(sizes), "pages": sizes, "type": document.kind}


def pruned_result(page: Page, options: OcrOptions) -> dict[str, Any]:
    """Return `prunedResult` of one page; coordinates are whole pixels of the page."""
    lines = page.lines
    result: dict[str, Any] = {
        "model_settings": {
            "use_doc_preprocessor": False,
            "use_textline_orientation": options.line_angle,
        },
        "dt_polys": [_whole(polygon) for polygon in page.regions],
        "text_det_params": {
            "limit_side_len": options.det_side_px or 64,
            "limit_type": options.det_side_type or "min",
            "thresh": options.det_threshold,
            "max_side_limit": 4000,
            "box_thresh": options.det_box_threshold,
            "unclip_ratio": options.det_unclip_ratio,
        },
        "text_type": "general",
    }
    if page.regions:
        result["textline_orientation_angles"] = [-1] * len(page.regions)
    result |= {
        "text_rec_score_thresh": options.min_confidence,
        "return_word_box": options.words,
        "rec_texts": [line.text for line in lines],
        "rec_scores": [round(line.confidence, 5) for line in lines],
        "rec_polys": [_whole(line.polygon) for line in lines],
        "rec_boxes": [[round(value) for value in bounding_box(line.polygon)] for line in lines],
    }
    if options.words:
        result |= _words(lines)
    return result


def _words(lines: tuple[Line, ...]) -> dict[str, Any]:
    return {
        "text_word": [[word.text for word in line.words or ()] for line in lines],
        "text_word_boxes": [
            [[round(value) for value in bounding_box(word.polygon)] for word in line.words or ()]
            for line in lines
        ],
    }


def _whole(polygon: Polygon) -> list[list[int]]:
    return [[round(x), round(y)] for x, y in polygon]
