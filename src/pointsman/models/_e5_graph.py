"""Writes multilingual-e5-small as an ONNX graph: from embedded tokens to the mean of the last layer.

Matrix products take nearly all of the time, and there are two ways to do them:

*integer*
    Weights are 8-bit integers with one scale per output. Each token's activations become 8-bit integers with a scale
    of their own, and the product is exact in integers; so a token's result cannot depend on what else is in the
    batch, unlike with the usual dynamic quantisation, where one scale spans all. Where one such step is too coarse
    (see ``_FINE``) the rest that rounding left is quantised and multiplied as well, which gives some 15 bits.
    Measured against the same weights with float activations: mean cosine .9998.
*blocks*
    onnxruntime's ``MatMulNBits`` on the file's own 4-bit blocks, in float. Exact, and half as fast.

Integer products are right only on processors whose 8-bit dot product does not saturate (x86 with VNNI, ARM): that is
what the graph's second output, ``probe``, tells. Everything around the products is plain ONNX, besides attention and
GELU, which onnxruntime has fused. Its fused ``SkipLayerNormalization`` is not used: it was measured at 17 % of the
whole, an addition and a ``LayerNormalization`` at 6 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.models._e5_weights import BLOCK, E5Weights, dequantise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto

GRAPH_VERSION: Final = 1
"""Part of the prepared file's name; raise it with every change of what is written here."""

INPUT: Final = "embeddings"
"""Word, position and type embeddings summed: float32, (texts, tokens, hidden); no padding, no mask."""

OUTPUT: Final = "pooled"
"""Mean of the last layer over the tokens: float32, (texts, hidden), not normalised."""

PROBE: Final = "probe"
PROBE_VALUE: Final = 255 * 127 * BLOCK
"""What every element of ``probe`` is on a processor that multiplies 8-bit integers without saturation."""

# Inputs of these products have a few channels far larger than the rest, so 8 bits a token leave too little for the
# others: with all four coarse the cosine to float activations is .9992, with these two fine .9998, all fine .9999.
_FINE: Final = frozenset({"qkv", "fi"})
_MICROSOFT: Final = "com.microsoft"
_OPSET, _IR_VERSION = 18, 9  # the oldest that have what is used


def build_graph(weights: E5Weights, *, integer: bool) -> bytes:
    """The model, serialised; ``integer`` chooses the way of the matrix products."""
    from onnx import TensorProto, helper

    hidden = weights.header.hidden
    graph = _IntegerGraph(weights) if integer else _BlockGraph(weights)
    graph.write()
    sequence = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["texts", "tokens", hidden])
    outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["texts", hidden])]
    if integer:
        outputs.append(helper.make_tensor_value_info(PROBE, TensorProto.INT32, [BLOCK, BLOCK]))
    model = helper.make_model(
        helper.make_graph(graph.nodes, "multilingual-e5-small", [sequence], outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=_IR_VERSION,
    )
    serialised: bytes = model.SerializeToString()
    return serialised


class _Graph(ABC):
    """The transformer's layers; how to multiply is left to the subclass. Rows are tokens: (texts * tokens, hidden)."""

    def __init__(self, weights: E5Weights) -> None:
        self.weights = weights
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def write(self) -> None:
        header = self.weights.header
        self.constant("rows", np.array([-1, header.hidden], np.int64))
        self.constant("last axis", np.array([1], np.int64))
        self.add("Shape", [INPUT], "sequence")
        self.add("Reshape", [INPUT, "rows"], "input rows")
        self.begin()
        state = self.normalise("input rows", "emb.ln", "embedded")
        for layer in range(header.layers):
            state = self.layer(f"l{layer}.", state)
        self.add("Reshape", [state, "sequence"], "last layer")
        self.add("ReduceMean", ["last layer", "last axis"], OUTPUT, keepdims=0)

    def begin(self) -> None:  # noqa: B027  (only one of the two graphs shares anything)
        """Add what all products share."""

    def layer(self, name: str, state: str) -> str:
        """Attention and feed-forward, each added to its input and normalised; gives the new state."""
        shared = self.prepare(state, f"{name}qkv")
        heads = []
        for letter in "qkv":
            self.multiply(shared, name + letter, f"{name}{letter} rows")
            heads.append(self.add("Reshape", [f"{name}{letter} rows", "sequence"], name + letter))
        bias = np.concatenate([self.weights.floats(f"{name}{letter}.b") for letter in "qkv"])
        heads.append(self.constant(f"{name}qkv.b", bias))
        self.add("MultiHeadAttention", heads, f"{name}attention", _MICROSOFT, num_heads=self.weights.header.heads)
        self.add("Reshape", [f"{name}attention", "rows"], f"{name}context")
        attended = self.multiply(self.prepare(f"{name}context", f"{name}ao"), f"{name}ao", f"{name}attended")
        state = self.add_and_normalise(state, attended, f"{name}ao.b", f"{name}aln")

        inner = self.multiply(self.prepare(state, f"{name}fi"), f"{name}fi", f"{name}inner")
        active = self.add("BiasGelu", [inner, self.floats(f"{name}fi.b")], f"{name}active", _MICROSOFT)
        outer = self.multiply(self.prepare(active, f"{name}fo"), f"{name}fo", f"{name}outer")
        return self.add_and_normalise(state, outer, f"{name}fo.b", f"{name}oln")

    def add_and_normalise(self, state: str, change: str, bias: str, norm: str) -> str:
        biased = self.add("Add", [change, self.floats(bias)], f"{norm} biased")
        return self.normalise(self.add("Add", [state, biased], f"{norm} sum"), norm, f"{norm} out")

    def normalise(self, rows: str, name: str, output: str) -> str:
        gain, shift = self.floats(f"{name}.w"), self.floats(f"{name}.b")
        epsilon = self.weights.header.epsilon
        return self.add("LayerNormalization", [rows, gain, shift], output, axis=-1, epsilon=epsilon)

    @abstractmethod
    def prepare(self, rows: str, product: str) -> str:
        """Bring rows into the form that ``multiply`` takes."""

    @abstractmethod
    def multiply(self, prepared: str, tensor: str, output: str) -> str:
        """Multiply prepared rows by the transposed weights ``tensor``; no bias."""

    def columns(self, tensor: str) -> int:
        header = self.weights.header
        return header.feed_forward if tensor.endswith(".fo") else header.hidden

    def floats(self, name: str) -> str:
        return self.constant(name, self.weights.floats(name))

    def constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], output, domain=domain, **attributes))
        return output


class _BlockGraph(_Graph):
    def prepare(self, rows: str, product: str) -> str:  # noqa: ARG002 - floats need no preparation
        return rows

    def multiply(self, prepared: str, tensor: str, output: str) -> str:
        columns = self.columns(tensor)
        scales, nibbles = self.weights.blocks(f"{tensor}.w", columns)
        weights = self.constant(f"{tensor}.w", _pair_neighbours(nibbles))
        scales_name = self.constant(f"{tensor}.scales", scales.astype(np.float32).reshape(-1))
        return self.add(
            "MatMulNBits",
            [prepared, weights, scales_name],
            output,
            _MICROSOFT,
            K=columns,
            N=len(scales),
            bits=4,
            block_size=BLOCK,
        )


class _IntegerGraph(_Graph):
    def begin(self) -> None:
        self.constant("zero", np.array(128, np.uint8))  # activations are unsigned around 128, as the kernels want
        self.constant("one", np.array(1, np.float32))
        self.constant("step", np.array(1 / 127, np.float32))
        self.constant("fine step", np.array(1 / 254, np.float32))  # what rounding leaves is within half a step
        self.constant("smallest", np.array(1e-12, np.float32))  # a row of zeros has a scale, too
        self.add("Shape", ["input rows"], "row count", end=1)
        self.add("Expand", ["zero", "row count"], "zeros")
        ones = np.ones((BLOCK, BLOCK))
        self.constant("probe left", (ones * 255).astype(np.uint8))
        self.constant("probe right", (ones * 127).astype(np.int8))
        self.add("MatMulInteger", ["probe left", "probe right"], PROBE)

    def prepare(self, rows: str, product: str) -> str:
        self.add("Abs", [rows], f"{product} size")
        self.add("ReduceMax", [f"{product} size", "last axis"], f"{product} largest", keepdims=0)
        self.add("Max", [f"{product} largest", "smallest"], f"{product} bound")
        scale = self.add("Mul", [f"{product} bound", "step"], f"{product} scale")
        self.add("QuantizeLinear", [rows, scale, "zeros"], f"{product} coarse", axis=0)
        self.add("Unsqueeze", [scale, "last axis"], f"{product} row scale")
        if self.is_fine(product):
            self.add("DequantizeLinear", [f"{product} coarse", scale, "zeros"], f"{product} rounded", axis=0)
            rest = self.add("Sub", [rows, f"{product} rounded"], f"{product} rest")
            fine_scale = self.add("Mul", [scale, "fine step"], f"{product} fine scale")
            self.add("QuantizeLinear", [rest, fine_scale, "zeros"], f"{product} fine", axis=0)
        return product

    def multiply(self, prepared: str, tensor: str, output: str) -> str:
        values = dequantise(*self.weights.blocks(f"{tensor}.w", self.columns(tensor)))
        scales = np.abs(values).max(axis=1) / 127
        integers = np.rint(values / scales[:, None]).astype(np.int8).T
        weights = self.constant(f"{tensor}.w", integers)

        def product(part: str, scales: NDArray[np.float32]) -> str:
            scales_name = self.constant(f"{tensor}.{part} scales", scales)
            inputs = [f"{prepared} {part}", weights, "one", scales_name, "zero"]
            return self.add("MatMulIntegerToFloat", inputs, f"{output} {part}", _MICROSOFT)

        unscaled = product("coarse", scales)
        if self.is_fine(prepared):
            unscaled = self.add("Add", [unscaled, product("fine", scales / np.float32(254))], f"{output} both")
        return self.add("Mul", [unscaled, f"{prepared} row scale"], output)

    @staticmethod
    def is_fine(product: str) -> bool:
        return product.rsplit(".", maxsplit=1)[-1] in _FINE


def _pair_neighbours(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """From the file's pairing of values ``i`` and ``i + 16`` in a byte to MatMulNBits' of ``2 i`` and ``2 i + 1``."""
    values = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=-1)
    paired: NDArray[np.uint8] = values[..., 0::2] | (values[..., 1::2] << 4)
    return paired
