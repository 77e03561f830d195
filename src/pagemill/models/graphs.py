"""The models' graphs, rewritten so that bytes go in and little comes out.

Each rewrite keeps what the model computes (up to the rounding of float32); it only
moves work around:

- pixels enter as uint8 RGB, (n, height, width, 3), and are normalised inside;
- the detector's probabilities leave as uint8, and its two transposed convolutions
  are 1x1 convolutions whose channels are sub-pixels (`subpixels.unshuffle` puts them back);
- the recogniser's softmax over 18,710 classes is dropped on CPU (`ctc.from_logits` does
  it for the few steps that hold a character), or joined by its own maximum.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Head = Literal["logits", "best"]

_PIXELS: Final = "pagemill.pixels"
_UPSCALE: Final = 2  # of each of the detector's two transposed convolutions
SUBPIXELS: Final = 4  # both together, along each axis


@dataclass(slots=True)
class _Graph:
    """An ONNX graph with the look-ups that rewriting needs."""

    model: onnx.ModelProto

    def constant(self, name: str) -> NDArray[np.float32]:
        return numpy_helper.to_array(self._initializer(name)).astype(np.float32)

    def add_constant(self, name: str, value: NDArray[Any]) -> str:
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        self.model.graph.initializer.append(tensor)
        return name

    def replace_constant(self, name: str, value: NDArray[Any]) -> None:
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        self._initializer(name).CopyFrom(tensor)

    def producer(self, output: str) -> onnx.NodeProto:
        return next(node for node in self.model.graph.node if output in node.output)

    def through_identities(self, output: str) -> onnx.NodeProto:
        """Return what makes `output`, identities skipped."""
        node = self.producer(output)
        return self.through_identities(node.input[0]) if node.op_type == "Identity" else node

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.model.graph.node.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def set_outputs(self, *outputs: tuple[str, int, list[int | str]]) -> None:
        del self.model.graph.output[:]
        self.model.graph.output.extend(
            helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs
        )

    def serialized(self) -> bytes:
        """Return the model, without the nodes that no output needs any more."""
        _drop_unused(self.model.graph)
        return self.model.SerializeToString()

    def _initializer(self, name: str) -> onnx.TensorProto:
        return next(tensor for tensor in self.model.graph.initializer if tensor.name == name)


def detector(content: bytes) -> bytes:
    """Return the detector as (1, h, w, 3) uint8 -> (1, 16, h/4, w/4) uint8; see
    `subpixels.unshuffle`.
    """
    graph = _Graph(onnx.load_from_string(content))
    _take_pixels(graph)
    sigmoid = graph.producer(graph.model.graph.output[0].name)
    second_add, second = _bias_and_up(graph, sigmoid.input[0])
    relu = graph.through_identities(second.input[0])
    first_add, first = _bias_and_up(graph, relu.input[0])
    up, bias = _as_subpixels(graph, first, first_add)
    hidden = graph.add(
        "Relu",
        [graph.add("Conv", [first.input[0], up, bias], "pagemill.up")],
        "pagemill.hidden",
    )
    up, bias = _as_subpixels(graph, second, second_add, blocks=_UPSCALE**2)
    logits = graph.add("Conv", [hidden, up, bias], "pagemill.logits")
    _leave_as_bytes(graph, graph.add("Sigmoid", [logits], "pagemill.probability"))
    return graph.serialized()


def recognizer(content: bytes, head: Head) -> bytes:
    """Return the recogniser, (n, 48, w, 3) uint8 -> `head`.

    "logits": (n, steps, classes) float32. "best": the class, int64, and its
    probability, float32, (n, steps) each.
    """
    graph = _Graph(onnx.load_from_string(content))
    _take_pixels(graph)
    softmax = graph.producer(graph.model.graph.output[0].name)
    if head == "logits":
        graph.set_outputs((softmax.input[0], TensorProto.FLOAT, ["n", "steps", "classes"]))
        return graph.serialized()
    probabilities = softmax.output[0]
    best = graph.add("ArgMax", [probabilities], "pagemill.best", axis=2, keepdims=0)
    certainty = graph.add("ReduceMax", [probabilities], "pagemill.max", axes=[2], keepdims=0)
    graph.set_outputs(
        (best, TensorProto.INT64, ["n", "steps"]), (certainty, TensorProto.FLOAT, ["n", "steps"])
    )
    return graph.serialized()


def characters(content: bytes) -> list[str]:
    """Return the recogniser's classes: blank (""), the characters of its metadata, space."""
    metadata = onnx.load_from_string(content).metadata_props
    listed = next(entry.value for entry in metadata if entry.key == "character")
    return ["", *listed.splitlines(), " "]


def line_angle(content: bytes) -> bytes:
    """Return the line-angle classifier, (n, 48, 192, 3) uint8 -> (n, 2) probabilities."""
    graph = _Graph(onnx.load_from_string(content))
    _take_pixels(graph)
    return graph.serialized()


def _take_pixels(graph: _Graph) -> None:
    """Let RGB bytes in: x / 127.5 - 1, channels first, in the order that training had (BGR)."""
    inner = graph.model.graph.input[0].name
    first = next(node for node in graph.model.graph.node if inner in node.input)
    weights = graph.constant(first.input[1])
    graph.replace_constant(first.input[1], weights[:, ::-1])  # RGB costs nothing this way
    del graph.model.graph.input[:]
    graph.model.graph.input.append(
        helper.make_tensor_value_info(_PIXELS, TensorProto.UINT8, ["n", "h", "w", 3])
    )
    scale = graph.add_constant("pagemill.scale", np.float32(1 / 127.5).reshape(1))
    shift = graph.add_constant("pagemill.shift", np.float32(-1).reshape(1))
    nodes = [
        helper.make_node("Cast", [_PIXELS], ["pagemill.float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["pagemill.float"], ["pagemill.planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Mul", ["pagemill.planes", scale], ["pagemill.scaled"]),
        helper.make_node("Add", ["pagemill.scaled", shift], [inner]),
    ]
    for index, node in enumerate(nodes):
        graph.model.graph.node.insert(index, node)


def _bias_and_up(graph: _Graph, output: str) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Return the addition and the transposed convolution before it that make `output`."""
    add = graph.through_identities(output)
    up = graph.through_identities(add.input[0])
    assert (add.op_type, up.op_type) == ("Add", "ConvTranspose")  # the sha256 is checked
    return add, up


def _as_subpixels(
    graph: _Graph, up: onnx.NodeProto, add: onnx.NodeProto, *, blocks: int = 1
) -> tuple[str, str]:
    """Return weights and bias of the 1x1 convolution that equals a 2x2 one of stride 2.

    Its windows do not overlap, so each output pixel has one input pixel. With
    `blocks`, the input's channels are that many sub-pixels, each treated alike.
    """
    weights = graph.constant(_constant_name(graph, up.input[1]))  # (in, out, 2, 2)
    one = weights.transpose(2, 3, 1, 0).reshape(-1, weights.shape[0])
    whole = np.kron(np.eye(blocks, dtype=np.float32), one)
    bias = graph.constant(_constant_name(graph, add.input[1])).reshape(-1)
    name = up.output[0]
    return (
        graph.add_constant(f"pagemill.{name}.weights", whole[:, :, None, None]),
        graph.add_constant(f"pagemill.{name}.bias", np.tile(bias, blocks * _UPSCALE**2)),
    )


def _constant_name(graph: _Graph, name: str) -> str:
    while (node := _producer_or_none(graph, name)) is not None:
        assert node.op_type == "Identity"  # the sha256 is checked
        name = node.input[0]
    return name


def _producer_or_none(graph: _Graph, name: str) -> onnx.NodeProto | None:
    return next((node for node in graph.model.graph.node if name in node.output), None)


def _leave_as_bytes(graph: _Graph, probability: str) -> None:
    scale = graph.add_constant("pagemill.255", np.float32(255).reshape(1))
    half = graph.add_constant("pagemill.half", np.float32(0.5).reshape(1))  # Cast truncates
    scaled = graph.add("Mul", [probability, scale], "pagemill.probability255")
    rounded = graph.add("Add", [scaled, half], "pagemill.rounded")
    output = graph.add("Cast", [rounded], "pagemill.map", to=TensorProto.UINT8)
    graph.set_outputs((output, TensorProto.UINT8, ["n", SUBPIXELS**2, "h4", "w4"]))


def _drop_unused(graph: onnx.GraphProto) -> None:
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(reversed(kept))
    graph.initializer.extend(initializers)
