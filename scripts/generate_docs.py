"""Writes docs/settings.md, docs/errors.md and docs/cli.md from the code; --check compares.

tests/test_docs.py holds that what is committed is what this writes.
"""

import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from pagemill import cli, errors, settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
GENERATED = "<!-- Written by scripts/generate_docs.py (`make docs`); edit the code instead. -->\n\n"


SETTINGS_INTRODUCTION = f"""{GENERATED}# Settings

From command-line flags, then environment variables, then one TOML file
(`--config`, `$PAGEMILL_CONFIG` or `./pagemill.toml`), then the defaults below.
A variable's name is `PAGEMILL_`, the section, `__` and the field:
`PAGEMILL_LIMITS__MAX_PAGES=50`. `pagemill config` prints what is in effect,
`pagemill config --schema` the JSON schema. An unknown name is an error.

```toml
[limits]
max_pages = 50

[[workers]]
count = 4
```
"""
ERRORS_INTRODUCTION = f"""{GENERATED}# Errors

Every way a request can end without its answer. `code` is stable.

Native routes answer `{{"error": {{"code", "message", "request_id"}}}}`; the PaddleX contract
answers `{{"logId", "errorCode", "errorMsg"}}` with `errorCode` equal to the HTTP status,
and 422 for every document that cannot be read. 429 and 503 carry `Retry-After`.
Statuses 404 and 405 of unknown paths and methods have the codes `not_found` and
`method_not_allowed`.

| code | HTTP | exit | log | meaning |
|---|---|---|---|---|
"""


def settings_page() -> str:
    """Return the page of all settings."""
    parts = [SETTINGS_INTRODUCTION]
    for name, field in settings.Settings.model_fields.items():
        model = field.annotation
        title = f"[{name}]"
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            model = get_args(model)[0]
            title = f"[[{name}]]"
        parts.append(f"\n## `{title}`\n\n{(model.__doc__ or '').strip()}\n\n")
        parts.append("| field | type | default | meaning |\n|---|---|---|---|\n")
        parts += [_row(each, info) for each, info in model.model_fields.items()]
    return "".join(parts)


def _row(name: str, field: Any) -> str:
    default = "" if field.default is PydanticUndefined else field.default
    shown = "unset" if default is None else f"`{_toml(default)}`"
    return f"| `{name}` | {_kind(field.annotation)} | {shown} | {field.description} |\n"


def _kind(annotation: Any) -> str:
    """Return a type as a reader of TOML knows it; unset is a default, no type."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " or ".join(f"`{_toml(part)}`" for part in parts)
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not NoneType)
    return {SecretStr: "str"}.get(annotation, annotation.__name__)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def errors_page() -> str:
    """Return the page of all error codes."""
    rows = [
        f"| `{code}` | {int(cls.status)} | {cls.exit_code} | {cls.log_level} | {_first(cls)} |\n"
        for code, cls in sorted(errors.all_errors().items())
    ]
    return ERRORS_INTRODUCTION + "".join(rows)


def _first(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def cli_page() -> str:
    """Return the page of the command line."""
    group: Any = typer.main.get_command(cli.app)
    parts = [GENERATED, "# Command line\n"]
    for name, command in sorted(group.commands.items()):
        parts.append(f"\n## `pagemill {name}`\n\n{_paragraphs(command.help)}\n\n")
        parts.append("| option | meaning | default |\n|---|---|---|\n")
        parts += [_option(each) for each in command.params if each.name != "help"]
    return "".join(parts)


def _paragraphs(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _option(parameter: Any) -> str:
    arguments = parameter.param_type_name == "argument"
    names = (parameter.name or "").upper() + "..." if arguments else ", ".join(parameter.opts)
    shown = getattr(parameter, "show_default", None)
    default = shown if isinstance(shown, str) else parameter.default
    text = "" if default in (None, False) or arguments else str(default)
    return f"| `{names}` | {getattr(parameter, 'help', '') or ''} | {text} |\n"


PAGES = {"settings.md": settings_page, "errors.md": errors_page, "cli.md": cli_page}


def main() -> int:
    """Write the pages, or compare them."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if "--check" in sys.argv:
            stale += [name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    print("stale, run `make docs`: " + ", ".join(stale) if stale else "the pages are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
