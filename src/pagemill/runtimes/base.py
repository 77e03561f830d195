"""What a native runtime is to the stages, and how one is chosen by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from pagemill.errors import BadOption
from pagemill.models.cache import Cache, default_folder
from pagemill.models.recipes import Recipe

Precision = Literal["auto", "f32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """How models run in this worker; `device` is cpu, cuda, tensorrt or cuda:1."""

    threads: int = 1
    device: str = "cpu"
    precision: Precision = "auto"


class Model(Protocol):
    """A model ready to run, on one thread."""

    facts: dict[str, str]

    def run(self, inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return the outputs, in the graph's order.

        They may be views that the next call overwrites, and `inputs` may be read
        until then.
        """
        ...


class Runtime(Protocol):
    """A native runtime with its options."""

    name: str
    reduces: bool  # is it cheaper to take the maximum of many outputs inside the graph?

    def load(self, recipe: Recipe, cache: Cache) -> Model:
        """Return a model; what is made of it on the way may be kept in `cache`.

        Raises:
            NotInstalled: the weights are missing, or the runtime lacks what the options ask for.

        """
        ...


def open_runtime(config: dict[str, Any]) -> Runtime:
    """Return the runtime that a stage's configuration names.

    Raises:
        NotInstalled: it, or the device's part of it, is not installed.
        BadOption: there is no such runtime, device or precision.

    """
    options = RuntimeOptions(
        threads=config.get("threads", 1),
        device=config.get("device", "cpu"),
        precision=config.get("precision", "auto"),
    )
    match config.get("runtime", "openvino"):
        case "openvino":
            from pagemill.runtimes.openvino import OpenVino  # noqa: PLC0415 - loads the native library

            return OpenVino(options)
        case "onnxruntime":
            from pagemill.runtimes.onnxruntime import OnnxRuntime  # noqa: PLC0415 - likewise

            return OnnxRuntime(options)
        case name:
            message = f"There is no runtime {name!r}; choose openvino or onnxruntime."
            raise BadOption(message)


def open_cache(config: dict[str, Any]) -> Cache:
    """Return the cache in the folder `cache_dir`; None keeps nothing, by default the user's own."""
    folder = config.get("cache_dir", default_folder())
    return Cache(None if folder is None else Path(folder))
