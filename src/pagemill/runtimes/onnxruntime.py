"""ONNX Runtime: every other CPU, and the GPUs of NVIDIA."""

from typing import Any, Final

from numpy.typing import NDArray

from pagemill.errors import BadOption, NotInstalled
from pagemill.models.cache import Cache
from pagemill.models.recipes import Recipe
from pagemill.runtimes.base import Model, RuntimeOptions

try:
    import onnxruntime as ort
except ImportError as error:
    _MESSAGE: Final = (
        "The runtime onnxruntime is not installed. Install it: pip install onnxruntime "
        "(or onnxruntime-gpu for cuda and tensorrt)."
    )
    raise NotInstalled(_MESSAGE) from error

_PROVIDERS: Final = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_ERROR: Final = 3  # log severity: warnings about fallen-back nodes say nothing to users


class OnnxRuntime:
    """One session a model; no arena that only grows, no spinning threads."""

    name = "onnxruntime"
    reduces = True

    def __init__(self, options: RuntimeOptions) -> None:
        """Take the options.

        Raises:
            BadOption: there is no such device, or not at this precision.
            NotInstalled: this build of onnxruntime has no such device.

        """
        self._options = options
        self._device, _, self._card = options.device.lower().partition(":")
        self._providers = _providers(self._device, self._card, options.precision)

    def load(self, recipe: Recipe, cache: Cache) -> Model:
        """Open a session; see `Runtime.load`."""
        onnx = cache.get(f"onnx {recipe.key}", recipe.make)
        session = ort.InferenceSession(
            onnx, sess_options=_session_options(self._options), providers=self._providers
        )
        if session.get_providers()[0] != _PROVIDERS[self._device]:
            message = (
                f"onnxruntime could not start on {self._device}: a driver or library is missing "
                f"(it offers {', '.join(session.get_providers())})."
            )
            raise NotInstalled(message)
        return _Model(session, device=self._options.device, precision=self._options.precision)


def _providers(device: str, card: str, precision: str) -> list[tuple[str, dict[str, Any]]]:
    if device not in _PROVIDERS or not (card.isdecimal() or not card):
        message = (
            f"There is no device {device!r}; choose cpu, cuda or tensorrt, with :N for a card."
        )
        raise BadOption(message)
    if precision not in ("auto", "f32") and (device, precision) != ("tensorrt", "fp16"):
        message = f"onnxruntime on {device} runs at f32, not {precision}; fp16 needs tensorrt."
        raise BadOption(message)
    if _PROVIDERS[device] not in ort.get_available_providers():
        message = (
            f"This onnxruntime was built without {device}. Install onnxruntime-gpu in its place, "
            "or set runtime.device to cpu."
        )
        raise NotInstalled(message)
    index = {"device_id": card or "0"}
    match device:
        case "cuda":
            return [(_PROVIDERS["cuda"], index), (_PROVIDERS["cpu"], {})]
        case "tensorrt":
            half = {"trt_fp16_enable": str(precision == "fp16")}
            return [
                (_PROVIDERS["tensorrt"], index | half),
                (_PROVIDERS["cuda"], index),
                (_PROVIDERS["cpu"], {}),
            ]
        case _:
            return [(_PROVIDERS["cpu"], {})]


def _session_options(options: RuntimeOptions) -> ort.SessionOptions:
    session = ort.SessionOptions()
    session.intra_op_num_threads = options.threads
    session.inter_op_num_threads = 1
    session.enable_cpu_mem_arena = False  # it keeps the largest page ever seen
    session.enable_mem_pattern = False  # a plan for each new shape
    session.log_severity_level = _ERROR
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return session


class _Model:
    def __init__(self, session: ort.InferenceSession, *, device: str, precision: str) -> None:
        self._session = session
        self._input = session.get_inputs()[0].name
        self.facts = {
            "runtime": f"onnxruntime {ort.__version__}",
            "device": device,
            "precision": "fp16" if precision == "fp16" else "f32",
        }

    def run(self, inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return tuple(self._session.run(None, {self._input: inputs}))
