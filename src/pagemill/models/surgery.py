"""An ONNX graph with the look-ups and edits that rewriting it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Shape = list[int | str]


@dataclass(slots=True)
class Graph:
    """A model under change. Names of what is added must be new."""

    model: onnx.ModelProto

    @classmethod
    def of(cls, content: bytes) -> "Graph":
        """Read a model."""
        return cls(onnx.load_from_string(content))

    @property
    def input(self) -> str:
        """Return the name of the only input."""
        return str(self.model.graph.input[0].name)

    @property
    def output(self) -> str:
        """Return the name of the first output."""
        return str(self.model.graph.output[0].name)

    def nodes(self, op: str) -> list[onnx.NodeProto]:
        """Return the nodes of one operator, in order of use."""
        return [node for node in self.model.graph.node if node.op_type == op]

    def producer(self, output: str) -> onnx.NodeProto | None:
        """Return what makes `output`, identities skipped; None for inputs and constants."""
        node = next((each for each in self.model.graph.node if output in each.output), None)
        if node is None or node.op_type != "Identity":
            return node
        return self.producer(node.input[0])

    def made_by(self, op: str, output: str) -> onnx.NodeProto:
        """Return what makes `output`, which must be an `op`."""
        node = self.producer(output)
        assert node is not None  # the weights' sha256 was checked
        assert node.op_type == op  # likewise
        return node

    def consumer(self, output: str) -> onnx.NodeProto:
        """Return the only node that takes `output`, identities skipped."""
        (node,) = (each for each in self.model.graph.node if output in each.input)
        return self.consumer(node.output[0]) if node.op_type == "Identity" else node

    def constant(self, name: str) -> NDArray[np.float32]:
        """Return a constant's value, identities skipped."""
        for tensor in self.model.graph.initializer:
            if tensor.name == name:
                return numpy_helper.to_array(tensor).astype(np.float32)
        node = self.producer(name)
        if node is not None and node.op_type == "Constant":
            return numpy_helper.to_array(node.attribute[0].t).astype(np.float32)
        (identity,) = (each for each in self.nodes("Identity") if name in each.output)
        return self.constant(identity.input[0])

    def add_constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        self.model.graph.initializer.append(tensor)
        return name

    def insert(self, nodes: Sequence[onnx.NodeProto], *, after: onnx.NodeProto) -> None:
        """Put nodes behind another; every node must stay behind what it uses."""
        at = list(self.model.graph.node).index(after) + 1
        for index, node in enumerate(nodes):
            self.model.graph.node.insert(at + index, node)

    def begin_with(self, nodes: Sequence[onnx.NodeProto], inputs: onnx.ValueInfoProto) -> None:
        """Put nodes before all others, with an input of their own."""
        for index, node in enumerate(nodes):
            self.model.graph.node.insert(index, node)
        del self.model.graph.input[:]
        self.model.graph.input.append(inputs)

    def end_with(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[tuple[str, int, Shape]]
    ) -> None:
        """Put nodes after all others, and name the outputs with their types and shapes."""
        self.model.graph.node.extend(nodes)
        del self.model.graph.output[:]
        self.model.graph.output.extend(
            helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs
        )

    def take_over(self, old: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> None:
        """Put nodes in the place of `old`; the last of them makes its output."""
        nodes[-1].output[0] = old.output[0]
        self.insert(nodes, after=old)
        self.model.graph.node.remove(old)

    def serialized(self) -> bytes:
        """Return the model, without what no output needs any more."""
        graph = self.model.graph
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
        return bytes(self.model.SerializeToString())
