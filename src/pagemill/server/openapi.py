"""What /docs shows of routes whose bodies are read by hand."""

from typing import Any, Final

_STRING: Final = {"type": "string"}
_BOOLEAN: Final = {"type": "boolean", "nullable": True}
_NUMBER: Final = {"type": "number", "nullable": True}


def _error(description: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": shape}}}


_PADDLEX_ERROR: Final = {
    "type": "object",
    "properties": {
        "logId": _STRING,
        "errorCode": {"type": "integer"},
        "errorMsg": _STRING,
    },
}
_NATIVE_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": _STRING, "message": _STRING, "request_id": _STRING},
        }
    },
}
_FAULTS: Final = {
    "401": "A key is needed.",
    "413": "Larger than a limit.",
    "422": "The document or an option cannot be used; the message names the fix.",
    "500": "A fault of ours; the log has the request id.",
    "503": "Overloaded, loading or stopping; Retry-After says when to come back.",
    "504": "The deadline passed.",
}


def _responses(success: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    return {"200": success, **{code: _error(text, error) for code, text in _FAULTS.items()}}


_TIMEOUT: Final = {
    "name": "X-Request-Timeout-Seconds",
    "in": "header",
    "description": "Deadline of the request, from its arrival.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}


def _query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


NATIVE_OCR: Final[dict[str, Any]] = {
    "parameters": [
        _TIMEOUT,
        _query("pages", "Pages to read, counted from 1, such as 1-3,7.", type="string"),
        _query("password", "Password of a locked PDF.", type="string"),
        _query(
            "orientation",
            "auto turns pages that read badly; off reads them as they are.",
            type="string",
            enum=["auto", "off", "model"],
        ),
        _query("line_angle", "Turn upside-down lines over.", type="boolean"),
        _query("words", "Give each word's place too.", type="boolean"),
        _query("min_confidence", "Drop lines below.", type="number", minimum=0, maximum=1),
        _query("det_side_px", "Side the page is scaled to.", type="integer", minimum=32),
        _query("det_side_type", "Which side that is.", type="string", enum=["min", "max"]),
        _query("det_threshold", "A pixel is text above.", type="number"),
        _query("det_box_threshold", "A region is text above.", type="number"),
        _query("det_unclip_ratio", "How far regions grow.", type="number"),
    ],
    "requestBody": {
        "required": True,
        "description": "The document itself, of any content type, or a form with files.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
        },
    },
    "responses": _responses(
        {
            "description": "The text, as Accept wants it.",
            "content": {
                "application/json": {
                    "example": {
                        "request_id": "4d5c…",
                        "kind": "image",
                        "total_pages": 1,
                        "pages": [
                            {
                                "page": 1,
                                "width": 640,
                                "height": 480,
                                "turn": 0,
                                "lines": [
                                    {
                                        "text": "TOTAL 12.50",
                                        "confidence": 0.99123,
                                        "polygon": [[10, 20], [210, 20], [210, 44], [10, 44]],
                                        "box": [10, 20, 210, 44],
                                    }
                                ],
                            }
                        ],
                    }
                },
                "text/plain": {},
                "text/markdown": {},
                "application/x-ndjson": {},
            },
        },
        _NATIVE_ERROR,
    ),
}

PADDLEX_OCR: Final[dict[str, Any]] = {
    "parameters": [_TIMEOUT],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {**_STRING, "description": "base64, a data: URL, or an address."},
                        "fileType": {
                            "type": "integer",
                            "enum": [0, 1],
                            "nullable": True,
                            "description": "0 PDF, 1 image; told from the content when left out.",
                        },
                        "useDocOrientationClassify": _BOOLEAN,
                        "useDocUnwarping": _BOOLEAN,
                        "useTextlineOrientation": _BOOLEAN,
                        "textDetLimitSideLen": {"type": "integer", "nullable": True},
                        "textDetLimitType": {**_STRING, "enum": ["min", "max"], "nullable": True},
                        "textDetThresh": _NUMBER,
                        "textDetBoxThresh": _NUMBER,
                        "textDetUnclipRatio": _NUMBER,
                        "textRecScoreThresh": _NUMBER,
                        "returnWordBox": _BOOLEAN,
                        "visualize": _BOOLEAN,
                        "logId": {**_STRING, "nullable": True},
                    },
                }
            }
        },
    },
    "responses": _responses(
        {
            "description": "The envelope of PaddleX.",
            "content": {
                "application/json": {
                    "example": {
                        "logId": "4d5c…",
                        "result": {"ocrResults": [], "dataInfo": {}},
                        "errorCode": 0,
                        "errorMsg": "Success",
                    }
                }
            },
        },
        _PADDLEX_ERROR,
    ),
}
