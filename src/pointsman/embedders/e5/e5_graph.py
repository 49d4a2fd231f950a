"""Writes multilingual-e5-small as an ONNX graph: from embedded tokens to the last layer.

Matrix products take two thirds of the time. They multiply 8-bit integers: weights have one scale per output,
activations one per token. The sums are exact, so a token's result does not depend on the rest of the batch, unlike with
the usual dynamic quantisation, where one scale spans all. Three measures keep the result close to that of the same
weights with float activations (mean cosine .9998):

*Pairs of weights.* x86 processors without VNNI add two neighbouring products in 16 bits with saturation. The weight
scales are chosen so that no activations can saturate a pair (see ``_integers``), which costs a fraction of a bit; with
all weights in 7 bits the cosine falls by .0003. So one graph serves all processors, and vectors differ between
processors only by float rounding.

*Loud channels.* A few channels are far larger than the rest and would leave too few of the 8 bits to the others (mean
cosine .9992). They are divided before quantisation and their weights are multiplied (see ``_LOUD``).

*Unsigned GELU.* GELU is never below -.17, so nearly all of the 8 bits represent positive values.

Everything else is plain ONNX, except attention and GELU, which are onnxruntime's fused operators. GELU uses the tanh
approximation: a third faster, with the same cosine. The fused ``SkipLayerNormalization`` is not used: it took 17 % of
the total time, an addition and a ``LayerNormalization`` 6 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.embedders.e5.e5_weights import E5Weights, dequantise
from pointsman.embedders.e5.onnx_format import float_input, node, serialise_model, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GRAPH_VERSION: Final = 3
"""Part of the prepared file's name; increase it with every change of the graph."""

VECTORS_VERSION: Final = 2
"""Part of the embedder's name; increase it with every change of the vectors that is more than rounding."""

INPUT: Final = "embeddings"
"""Sum of word, position and type embeddings: float32, (texts, tokens, hidden); no padding, no mask."""

OUTPUT: Final = "last layer"
"""Float32, (texts, tokens, hidden). Without their mean, which the graph would add up otherwise for a single text."""

# Channels of the residual stream that are far above the median in most layers, and their divisors. Measured on 60 texts
# in English, Chinese and Russian; half as many more channels, or similar factors, gain nothing.
_LOUD: Final = {15: 4, 35: 4, 321: 3, 60: 2, 87: 2, 146: 2, 297: 2, 351: 2}
_LEAST_GELU: Final = -0.17
_MIDDLE, _LOW = 128, 24  # the unsigned integer that represents zero: usually, and after GELU
_LARGEST_PAIR: Final = 128  # 255 * 128 < 2 ** 15
_MICROSOFT: Final = "com.microsoft"
_OPSET, _IR_VERSION = 18, 9  # the oldest versions with the operators used


class Graph:
    """The model, layer by layer. Rows are tokens: (texts * tokens, hidden)."""

    def __init__(self, weights: E5Weights) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.loudness = np.ones(weights.header.width, np.float32)
        self.loudness[list(_LOUD)] = list(_LOUD.values())

    def serialise(self) -> bytes:
        """Return the whole model, serialised for onnxruntime."""
        width = self.weights.header.width
        self.add_shared()
        state = self.normalise("input rows", "emb.ln", "embedded")
        for layer in range(self.weights.header.layers):
            state = self.layer(f"l{layer}.", state)
        self.add("Reshape", [state, "sequence"], OUTPUT)
        return serialise_model(
            "multilingual-e5-small",
            self.nodes,
            self.constants,
            [float_input(INPUT, ["texts", "tokens", width])],
            [float_input(OUTPUT, ["texts", "tokens", width])],
            ir_version=_IR_VERSION,
            opsets={"": _OPSET, _MICROSOFT: 1},
        )

    def add_shared(self) -> None:
        """Add the input's rows and the constants of all layers."""
        self.constant("rows", np.array([-1, self.weights.header.width], np.int64))
        self.constant("last axis", np.array([1], np.int64))
        self.constant("quiet", 1 / self.loudness)
        self.constant("one", np.array(1, np.float32))
        self.constant("step", np.array(1 / 127, np.float32))
        self.constant("step after GELU", np.array(1 / (255 - _LOW), np.float32))
        self.constant("least scale after GELU", np.array(-_LEAST_GELU / _LOW, np.float32))
        self.constant("smallest", np.array(1e-12, np.float32))  # gives a row of zeros a scale
        self.add("Shape", [INPUT], "sequence")
        self.add("Reshape", [INPUT, "rows"], "input rows")
        self.add("Shape", ["input rows"], "row count", end=1)
        for zero in (_MIDDLE, _LOW):
            self.constant(f"zero {zero}", np.array(zero, np.uint8))
            self.add("Expand", [f"zero {zero}", "row count"], f"zeros {zero}")

    def layer(self, name: str, state: str) -> str:
        """Add attention and feed-forward, each with residual and normalisation; return the new state."""
        quantised_input = self.quantise(self.quieten(state), f"{name}qkv")
        heads = []
        for letter in "qkv":
            rows = self.multiply(quantised_input, name + letter, self.matrix(name + letter) * self.loudness)
            heads.append(self.add("Reshape", [rows, "sequence"], name + letter))
        bias = np.concatenate([self.weights.floats(f"{name}{letter}.b") for letter in "qkv"])
        heads.append(self.constant(f"{name}qkv.b", bias))
        self.add("MultiHeadAttention", heads, f"{name}attention", _MICROSOFT, num_heads=self.weights.header.heads)
        context = self.quantise(self.add("Reshape", [f"{name}attention", "rows"], f"{name}context"), f"{name}ao")
        attention = self.multiply(context, f"{name}ao", self.matrix(f"{name}ao"))
        state = self.add_and_normalise(state, attention, f"{name}ao.b", f"{name}aln")

        quantised_input = self.quantise(self.quieten(state), f"{name}fi")
        inner = self.multiply(quantised_input, f"{name}fi", self.matrix(f"{name}fi") * self.loudness)
        active = self.add("FastGelu", [inner, self.floats(f"{name}fi.b")], f"{name}active", _MICROSOFT)
        outer = self.multiply(self.quantise_gelu(active, f"{name}fo"), f"{name}fo", self.matrix(f"{name}fo"), _LOW)
        return self.add_and_normalise(state, outer, f"{name}fo.b", f"{name}oln")

    def add_and_normalise(self, state: str, change: str, bias: str, norm: str) -> str:
        """Add a change and its bias to the state, and normalise the sum."""
        biased_change = self.add("Add", [change, self.floats(bias)], f"{norm} biased")
        return self.normalise(self.add("Add", [state, biased_change], f"{norm} sum"), norm, f"{norm} out")

    def normalise(self, rows: str, name: str, output: str) -> str:
        """Add a layer normalisation of the rows."""
        gain, shift = self.floats(f"{name}.w"), self.floats(f"{name}.b")
        epsilon = self.weights.header.epsilon
        return self.add("LayerNormalization", [rows, gain, shift], output, axis=-1, epsilon=epsilon)

    def quieten(self, state: str) -> str:
        """Multiply the state by the mask: rows of padding become zero."""
        return self.add("Mul", [state, "quiet"], f"{state} quiet")

    def quantise(self, rows: str, product: str) -> str:
        """Quantise ``rows`` to integers around 128, with one scale per row."""
        self.add("Abs", [rows], f"{product} size")
        self.add("ReduceMax", [f"{product} size", "last axis"], f"{product} largest", keepdims=0)
        self.add("Max", [f"{product} largest", "smallest"], f"{product} bound")
        self.add("Mul", [f"{product} bound", "step"], f"{product} scale")
        return self.round(rows, product, _MIDDLE)

    def quantise_gelu(self, rows: str, product: str) -> str:
        """Quantise ``rows`` without values below ``_LEAST_GELU`` to integers above a low zero point."""
        self.add("ReduceMax", [rows, "last axis"], f"{product} largest", keepdims=0)
        self.add("Mul", [f"{product} largest", "step after GELU"], f"{product} largest scale")
        self.add("Max", [f"{product} largest scale", "least scale after GELU"], f"{product} scale")
        return self.round(rows, product, _LOW)

    def round(self, rows: str, product: str, zero: int) -> str:
        """Round the rows to integers around ``zero``, with the scales computed before."""
        self.add("QuantizeLinear", [rows, f"{product} scale", f"zeros {zero}"], f"{product} rounded", axis=0)
        self.add("Unsqueeze", [f"{product} scale", "last axis"], f"{product} row scale")
        return product

    def multiply(self, product: str, name: str, matrix: NDArray[np.float32], zero: int = _MIDDLE) -> str:
        """Multiply the quantised rows of ``product`` by the transposed ``matrix``; no bias."""
        integers, scales = _integers(matrix)
        weights, scale = self.constant(f"{name}.w", integers.T), self.constant(f"{name}.scales", scales)
        inputs = [f"{product} rounded", weights, "one", scale, f"zero {zero}"]
        self.add("MatMulIntegerToFloat", inputs, f"{name} unscaled", _MICROSOFT)
        return self.add("Mul", [f"{name} unscaled", f"{product} row scale"], f"{name} rows")

    def matrix(self, name: str) -> NDArray[np.float32]:
        """Return a matrix of the weight file, with its 4-bit blocks as floats."""
        header = self.weights.header
        columns = header.feed_forward if name.endswith(".fo") else header.width
        return dequantise(*self.weights.blocks(f"{name}.w", columns))

    def floats(self, name: str) -> str:
        """Add the floats of this name as a constant, and return the name."""
        return self.constant(name, self.weights.floats(name))

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a constant, and return its name."""
        self.constants.append(tensor(name, value))
        return name

    def add(self, operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: float) -> str:
        """Add a node, and return the name of its output."""
        self.nodes.append(node(operator, inputs, output, domain, attributes))
        return output


def _integers(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return ``matrix`` as 8-bit integers and one scale per row.

    For neighbours in a row and any activations from 0 to 255, ``u0 * w0 + u1 * w1`` fits 16 bits: two weights of the
    same sign add up to at most 128. Large neighbours seldom have the same sign, so this costs little of the 8 bits.
    """
    pairs = matrix.reshape(len(matrix), -1, 2)
    sums = np.maximum(np.maximum(pairs, 0).sum(axis=2), np.maximum(-pairs, 0).sum(axis=2))
    scales = sums.max(axis=1) / (_LARGEST_PAIR - 1)  # one less, as rounding may increase either by a half
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales
