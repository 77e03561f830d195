"""Every setting, from flags, environment and one TOML file; nothing else reads them.

Precedence: command-line flags, then `PAGEMILL_*` variables (`__` between a section
and its field), then the file (`--config`, `$PAGEMILL_CONFIG` or ./pagemill.toml),
then the defaults here. docs/settings.md is generated from this module.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from pagemill.errors import BadOption

MIB = 1024 * 1024
StageName = Literal["open", "read_page", "detect", "cut", "recognize", "line_angle", "draw"]
RuntimeName = Literal["auto", "openvino", "onnxruntime"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(_Section):
    """Where the server listens and who may call it."""

    host: str = Field(
        "127.0.0.1", description="Address to listen on; loopback unless told otherwise."
    )
    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None,
        description="Port to listen on. Unset: 8080, or the next free one. 0: any free one.",
    )
    api_keys: tuple[SecretStr, ...] = Field(
        (),
        description="Keys that callers must send: `Authorization: Bearer KEY` or `X-Api-Key`. "
        "None: open.",
    )
    drain_s: float = Field(
        30.0, ge=0, description="Seconds that accepted requests get to end after SIGTERM."
    )


class LogSettings(_Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level logged."
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto: text on a terminal, JSON lines elsewhere."
    )


class LimitSettings(_Section):
    """What is refused before work is spent on it."""

    max_bytes: int = Field(50 * MIB, gt=0, description="Largest document, in bytes.")
    max_pixels: int = Field(
        100_000_000, gt=0, description="Largest page, in pixels after decoding or rendering."
    )
    max_pages: int = Field(1000, gt=0, description="Most pages of one document.")
    max_requests: int = Field(256, gt=0, description="Most requests accepted at a time.")
    default_timeout_s: float = Field(
        120.0,
        gt=0,
        description="Deadline of a request that names none (X-Request-Timeout-Seconds).",
    )
    max_timeout_s: float = Field(
        1800.0, gt=0, description="Longest deadline that a request may name."
    )


class FetchSettings(_Section):
    """Whether `file` may be an address, and which."""

    allow_urls: bool = Field(default=False, description="Fetch http(s) addresses given in `file`.")
    allow_hosts: tuple[str, ...] = Field(
        (),
        description="Only these hosts, which may be private or loopback too. "
        "Empty: any public host.",
    )
    timeout_s: float = Field(
        10.0, gt=0, description="Seconds that a fetch may take, redirects included."
    )


class OcrSettings(_Section):
    """Defaults of pipeline `ocr`."""

    orientation: Literal["auto", "off"] = Field(
        "auto", description="auto: a page that reads badly or stands on its side is read turned."
    )
    min_confidence: float = Field(
        0.5, ge=0, le=1, description="Lines below this mean probability are dropped."
    )
    window: int = Field(
        4, gt=0, description="Pages of one document in work at a time; bounds memory."
    )


class PaddlexSettings(_Section):
    """The PaddleX contract (`POST /ocr`)."""

    visualize: bool = Field(
        default=False,
        description="Answer with pictures when a request leaves `visualize` out. PaddleX does.",
    )
    max_pages: int | None = Field(
        10,
        gt=0,
        description="Pages answered; the rest is dropped silently, as PaddleX does. Unset: all.",
    )


class RuntimeSettings(_Section):
    """How models run, unless a worker group says otherwise."""

    runtime: RuntimeName = Field(
        "auto", description="auto: openvino on x86-64, onnxruntime elsewhere."
    )
    device: str = Field(
        "cpu", description="cpu, cuda or tensorrt (onnxruntime only); `cuda:1` names a card."
    )
    precision: Literal["auto", "f32", "bf16", "fp16"] = Field(
        "auto",
        description="auto: what the runtime chooses for this processor; /health/ready reports it.",
    )


class WorkerGroupSettings(_Section):
    """One group of equal worker processes."""

    name: str = Field("cpu", pattern=r"^[a-z0-9_-]{1,32}$", description="Name in logs and metrics.")
    stages: tuple[StageName, ...] = Field(
        ("open", "read_page", "detect", "cut", "recognize", "line_angle", "draw"),
        description="What these workers can do.",
    )
    count: int | None = Field(None, gt=0, description="Workers. Unset: one for each usable core.")
    threads: int = Field(1, gt=0, description="Cores a worker; each worker is bound to its own.")
    runtime: RuntimeName | None = Field(None, description="Overrides runtime.runtime.")
    device: str | None = Field(None, description="Overrides runtime.device.")
    precision: Literal["auto", "f32", "bf16", "fp16"] | None = Field(
        None, description="Overrides runtime.precision."
    )
    batch: int = Field(
        1, gt=0, description="Most items of equal shape run as one batch; 1 is right on CPU."
    )
    max_rss_mb: int = Field(900, gt=0, description="A worker above this retires after its batch.")
    max_tasks: int | None = Field(
        None, gt=0, description="A worker retires after so many items. Unset: never."
    )


class Settings(BaseSettings):
    """All settings, frozen."""

    model_config = SettingsConfigDict(
        env_prefix="PAGEMILL_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        validate_default=True,
    )

    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    limits: LimitSettings = LimitSettings()
    fetch: FetchSettings = FetchSettings()
    ocr: OcrSettings = OcrSettings()
    paddlex: PaddlexSettings = PaddlexSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    workers: tuple[WorkerGroupSettings, ...] = Field(
        (WorkerGroupSettings(),), min_length=1, description="The worker groups."
    )


_CONFIG_VARIABLE: Final = "PAGEMILL_CONFIG"
_DEFAULT_FILE: Final = Path("pagemill.toml")


def load(*, config: Path | None = None, flags: dict[str, Any] | None = None) -> Settings:
    """Return the effective settings.

    Args:
        config: a TOML file that must exist; None looks for the default one.
        flags: nested values that win over everything else.

    Raises:
        BadOption: a value is out of range, a name unknown, or the file unreadable.

    """
    named = os.environ.get(_CONFIG_VARIABLE)  # noqa: TID251 - the one place that may
    path = config or (Path(named) if named else _DEFAULT_FILE)
    if path != _DEFAULT_FILE and not path.is_file():
        message = f"There is no configuration file {path}."
        raise BadOption(message)

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library passes it by name
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            file = TomlConfigSettingsSource(settings_cls, toml_file=path)
            return init_settings, env_settings, file

    try:
        return Layered(**(flags or {}))
    except (ValidationError, SettingsError, OSError, tomllib.TOMLDecodeError) as error:
        raise BadOption(_explain(error, path)) from error


def _explain(error: Exception, path: Path) -> str:
    if not isinstance(error, ValidationError):
        return f"The settings cannot be read ({path}): {error}"
    faults = (
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors()
    )
    return f"Wrong settings: {'; '.join(faults)}. `pagemill config --schema` lists what there is."
