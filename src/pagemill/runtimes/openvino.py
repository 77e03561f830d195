"""OpenVINO: the fastest on x86-64 CPUs."""

import contextlib
import ctypes
import io
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pagemill.errors import BadOption, NotInstalled
from pagemill.models.cache import Cache
from pagemill.models.recipes import Recipe
from pagemill.runtimes.base import Model, RuntimeOptions

try:
    import openvino
except ImportError as error:
    _MESSAGE: Final = (
        "The runtime openvino is not installed. Install it (pip install openvino) or set "
        "runtime.runtime to onnxruntime."
    )
    raise NotInstalled(_MESSAGE) from error

_PRECISIONS: Final = {"f32": "f32", "bf16": "bf16", "fp16": "f16"}

# Kernels compiled for a shape are kept; by default 5,000 of each model, which a worker
# takes hours to fill. One shape needs about this many:
KERNELS_A_SHAPE: Final = 120

_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_LARGE_BYTES: Final = 1 << 20


class OpenVino:
    """The CPU device: one stream, our own affinity."""

    name = "openvino"
    reduces = False  # its outputs are read in place, and numpy finds a maximum faster

    def __init__(self, options: RuntimeOptions) -> None:
        """Take the options; nothing is compiled yet.

        Raises:
            BadOption: the device is no CPU.

        """
        if options.device.lower() != "cpu":
            message = (
                f"The runtime openvino runs on the cpu here, not on {options.device!r}; "
                "set runtime.runtime to onnxruntime for cuda and tensorrt."
            )
            raise BadOption(message)
        _return_memory()
        self._core = openvino.Core()
        self._properties = _properties(options)

    def load(self, recipe: Recipe, cache: Cache) -> Model:
        """Compile a model; see `Runtime.load`.

        Even a model just compiled is taken from its exported form, so that all
        workers run the same, first or last.
        """
        properties = self._properties | {
            "CPU_RUNTIME_CACHE_CAPACITY": recipe.shapes * KERNELS_A_SHAPE
        }
        processor = self._core.get_property("CPU", "FULL_DEVICE_NAME")
        key = f"openvino {openvino.__version__} {processor} {properties} {recipe.key}"
        exported = cache.get(key, lambda: self._export(recipe, properties))
        return _Model(self._core.import_model(exported, "CPU", properties))

    def _export(self, recipe: Recipe, properties: dict[str, Any]) -> bytes:
        model = self._core.read_model(recipe.make(), b"")
        exported = self._core.compile_model(model, "CPU", properties).export_model()
        return bytes(exported.getbuffer()) if isinstance(exported, io.BytesIO) else exported


def _return_memory() -> None:
    """Have large blocks mapped and unmapped one by one.

    By default glibc raises that size to 32 MiB as blocks are freed; then a page's
    layers leave holes, and the process keeps 60 % more than it ever used.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _properties(options: RuntimeOptions) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # two one-thread processes would be pinned to one core
    }
    if options.precision != "auto":
        properties["INFERENCE_PRECISION_HINT"] = _PRECISIONS[options.precision]
    return properties


class _Model:
    def __init__(self, compiled: openvino.CompiledModel) -> None:
        self._request = compiled.create_infer_request()
        self._outputs = len(compiled.outputs)
        precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.facts = {
            "runtime": f"openvino {openvino.__version__.split('-')[0]}",
            "device": "cpu",
            "precision": precision,
        }

    def run(self, inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        contiguous = np.ascontiguousarray(inputs)
        self._request.set_input_tensor(openvino.Tensor(contiguous, shared_memory=True))
        self._request.infer()
        return tuple(self._request.get_output_tensor(i).data for i in range(self._outputs))
