"""The command line: `pagemill serve`, `pagemill ocr`, `pagemill config`."""

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from pagemill import __version__, settings
from pagemill.errors import AppError
from pagemill.files import OutputFormat
from pagemill.settings import Settings

app = typer.Typer(
    name="pagemill",
    help="Document AI that stays up and stays right under load.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file of settings.", show_default="./pagemill.toml"),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", "-w", min=1, help="Worker processes.", show_default="one a core"),
]


def main() -> None:
    """Run the command line; errors become one sentence and an exit status."""
    try:
        app()
    except AppError as error:
        _fail(error)


def _fail(error: AppError) -> NoReturn:
    typer.echo(f"pagemill: {error.message} [{error.code}]", err=True)
    raise SystemExit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pagemill {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Read documents: OCR on every core, with every native model in its own process."""


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", help="Port; 0 takes any.", show_default="8080 or the next free"
        ),
    ] = None,
    workers: WorkersOption = None,
    config: ConfigOption = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
) -> None:
    """Serve the HTTP API until Ctrl-C or SIGTERM, then drain.

    Try it: curl --data-binary @receipt.jpg http://127.0.0.1:8080/v1/ocr
    """
    from pagemill import serving  # noqa: PLC0415 - keeps --help fast

    chosen: dict[str, Any] = {
        "server": _given(host=host, port=port),
        "log": _given(level=log_level),
    }
    serving.serve(_load(config, chosen, workers))


@app.command()
def ocr(
    paths: Annotated[
        list[Path], typer.Argument(help="Files, folders (searched), or - for standard input.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one document a line.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="Plain text (the default).")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for one answer a file; done files are skipped."
        ),
    ] = None,
    pages: Annotated[str | None, typer.Option(help="Pages to read, such as 1-3,7.")] = None,
    password: Annotated[str | None, typer.Option(help="Password of locked PDFs.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Read again what is done.")] = False,
    workers: WorkersOption = None,
    config: ConfigOption = None,
) -> None:
    """Read documents here, without a server.

    Exit status: 0 when every document was read, else 1 (each failure is named).
    """
    from pagemill import batch  # noqa: PLC0415 - keeps --help fast

    wanted = dict(zip(get_args(OutputFormat), (as_json, as_text, as_markdown), strict=True))
    formats: list[OutputFormat] = [name for name, chosen in wanted.items() if chosen]
    if len(formats) > 1:
        message = "Choose one of --json, --text and --markdown."
        raise typer.BadParameter(message)
    job = batch.Job(
        paths=tuple(paths),
        output=output,
        output_format=formats[0] if formats else "text",
        pages=pages,
        password=password,
        force=force,
    )
    chosen = {"log": {"level": "warning"}}
    raise SystemExit(batch.run(job, _load(config, chosen, workers)))


@app.command()
def config(
    config: ConfigOption = None,
    schema: Annotated[bool, typer.Option("--schema", help="JSON schema of the settings.")] = False,
) -> None:
    """Print the effective settings as JSON; keys are masked."""
    shown = (
        Settings.model_json_schema() if schema else _load(config, {}, None).model_dump(mode="json")
    )
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _load(path: Path | None, flags: dict[str, Any], workers: int | None) -> Settings:
    loaded = settings.load(config=path, flags=flags)
    if workers is None:
        return loaded
    first, *rest = loaded.workers
    groups = (first.model_copy(update={"count": workers}), *rest)
    return loaded.model_copy(update={"workers": groups})


if __name__ == "__main__":
    main()
