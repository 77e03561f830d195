"""OpenVINO: the fastest on x86-64 CPUs."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pagemill.errors import BadOption, NotInstalled
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

# Kernels compiled for one shape are kept for so many (node, shape) pairs; the
# default, 5000, lets a worker grow for hours. A pass of a model is about 200 nodes.
KERNELS_KEPT: Final = 2000


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
        self._core = openvino.Core()
        self._properties = _properties(options)

    def load(self, onnx: bytes) -> Model:
        """Compile a model; see `Runtime.load`."""
        model = self._core.read_model(onnx, b"")
        return _Model(self._core.compile_model(model, "CPU", self._properties))


def _properties(options: RuntimeOptions) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # two one-thread processes would be pinned to one core
        "CPU_RUNTIME_CACHE_CAPACITY": KERNELS_KEPT,
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
