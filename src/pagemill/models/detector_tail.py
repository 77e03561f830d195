"""The end of the detector's graph, where it works at the page's full size, made cheaper."""

from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from pagemill.models.surgery import Graph

_UPSCALE: Final = 2  # of each of the two transposed convolutions
_SUBPIXELS: Final = _UPSCALE**4  # of both together
_TO_THIRD: Final = (4, 2)  # how much the two coarsest levels are enlarged to the third

# Which rows of a 3x3 kernel fall on each of the two coarse rows that an output row
# sees, by which half of a doubled row that one is; columns likewise.
_TAPS: Final = (((0,), (1, 2)), ((0, 1), (2,)))


def join_coarse_levels(graph: Graph) -> None:
    """Convolve the three coarse levels at half of the size that they are enlarged to.

    A 3x3 window over a doubled image sees 2x2 pixels of the image, so a 2x2
    convolution gives the same with 4/9 of the work: each of its windows makes the
    four output pixels around its middle.
    """
    concat = graph.nodes("Concat")[-1]
    conv = graph.consumer(concat.output[0])
    add = graph.consumer(conv.output[0])
    weights = graph.constant(conv.input[1])
    coarse, fine = np.split(weights, [3 * weights.shape[1] // 4], axis=1)
    fine_weights = graph.add_constant("pagemill.fine.weights", fine)
    bias = graph.add_constant("pagemill.fine.bias", graph.constant(add.input[1]).reshape(-1))
    levels = [graph.made_by("Resize", name).input[0] for name in concat.input[:3]]
    nodes = [
        *_joined(graph, levels, "pagemill.coarse"),
        *_doubled(graph, "pagemill.coarse", coarse, "pagemill.coarse.out"),
        helper.make_node(
            "Conv",
            [concat.input[3], fine_weights, bias],
            ["pagemill.fine"],
            pads=[1, 1, 1, 1],
        ),
        helper.make_node("Add", ["pagemill.fine", "pagemill.coarse.out"], [""]),
    ]
    graph.take_over(add, nodes)


def _joined(graph: Graph, levels: list[str], output: str) -> list[onnx.NodeProto]:
    """Bring the coarsest two levels to the third one's size, channels side by side."""
    region = graph.add_constant("pagemill.no_region", np.zeros(0, np.float32))
    nodes = []
    for level, scale in zip(levels, _TO_THIRD, strict=False):
        factors = graph.add_constant(
            f"pagemill.{level}.x", np.array([1, 1, scale, scale], np.float32)
        )
        nodes.append(
            helper.make_node(
                "Resize",
                [level, region, factors],
                [f"pagemill.{level}.enlarged"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        )
    enlarged = [node.output[0] for node in nodes]
    return [*nodes, helper.make_node("Concat", [*enlarged, levels[-1]], [output], axis=1)]


def _doubled(
    graph: Graph, source: str, weights: NDArray[np.float32], output: str
) -> list[onnx.NodeProto]:
    """Return what equals doubling `source` and convolving it 3x3 with padding 1."""
    kernel = graph.add_constant("pagemill.windows.weights", _window_kernel(weights))
    inner = [
        graph.add_constant("pagemill.crop.starts", np.array([1, 1], np.int64)),
        graph.add_constant("pagemill.crop.ends", np.array([-1, -1], np.int64)),
        graph.add_constant("pagemill.crop.axes", np.array([2, 3], np.int64)),
    ]
    windows, blocks = "pagemill.windows", "pagemill.blocks"
    return [
        helper.make_node("Conv", [source, kernel], [windows], pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", [windows], [blocks], blocksize=2, mode="DCR"),
        helper.make_node("Slice", [blocks, *inner], [output]),  # blocks stand half a pixel out
    ]


def _window_kernel(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (4 * out, in, 2, 2) from (out, in, 3, 3); the four are the block's rows, columns.

    A block's upper row is the lower half of the doubled row above the window's middle.
    """
    kernel = np.zeros((2, 2, *weights.shape[:2], 2, 2), np.float32)
    for row, column, down, across in np.ndindex(2, 2, 2, 2):
        taps = weights[:, :, _TAPS[1 - row][down]][:, :, :, _TAPS[1 - column][across]]
        kernel[row, column, :, :, down, across] = taps.sum(axis=(2, 3))
    return kernel.reshape(-1, weights.shape[1], 2, 2)


def leave_as_subpixels(graph: Graph) -> None:
    """Make the two transposed convolutions 1x1 ones, and probabilities bytes."""
    sigmoid = graph.made_by("Sigmoid", graph.output)
    second_add = graph.made_by("Add", sigmoid.input[0])
    second = graph.made_by("ConvTranspose", second_add.input[0])
    relu = graph.made_by("Relu", second.input[0])
    first_add = graph.made_by("Add", relu.input[0])
    first = graph.made_by("ConvTranspose", first_add.input[0])
    scale = graph.add_constant("pagemill.255", np.array([255], np.float32))
    half = graph.add_constant("pagemill.half", np.array([0.5], np.float32))  # Cast truncates
    inputs = [first.input[0], *_as_subpixels(graph, first, first_add)]
    graph.end_with(
        [
            helper.make_node("Conv", inputs, ["pagemill.up"]),
            helper.make_node("Relu", ["pagemill.up"], ["pagemill.hidden"]),
            helper.make_node(
                "Conv",
                ["pagemill.hidden", *_as_subpixels(graph, second, second_add, blocks=4)],
                ["pagemill.logits"],
            ),
            helper.make_node("Sigmoid", ["pagemill.logits"], ["pagemill.probability"]),
            helper.make_node("Mul", ["pagemill.probability", scale], ["pagemill.probability255"]),
            helper.make_node("Add", ["pagemill.probability255", half], ["pagemill.rounded"]),
            helper.make_node("Cast", ["pagemill.rounded"], ["pagemill.map"], to=TensorProto.UINT8),
        ],
        [("pagemill.map", TensorProto.UINT8, ["n", _SUBPIXELS, "h4", "w4"])],
    )


def _as_subpixels(
    graph: Graph, up: onnx.NodeProto, add: onnx.NodeProto, *, blocks: int = 1
) -> tuple[str, str]:
    """Return weights and bias of the 1x1 convolution that equals a 2x2 one of stride 2.

    Its windows do not overlap, so each output pixel has one input pixel. With
    `blocks`, the input's channels are that many sub-pixels, each treated alike.
    """
    weights = graph.constant(up.input[1])  # (in, out, 2, 2)
    one = weights.transpose(2, 3, 1, 0).reshape(-1, weights.shape[0])
    whole = np.kron(np.eye(blocks, dtype=np.float32), one)
    bias = np.tile(graph.constant(add.input[1]).reshape(-1), blocks * _UPSCALE**2)
    name = f"pagemill.{up.output[0]}"
    return (
        graph.add_constant(f"{name}.weights", whole[:, :, None, None]),
        graph.add_constant(f"{name}.bias", bias),
    )
