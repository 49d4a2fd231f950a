"""The file of the default embedder's graph, read by the package that defines the format."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pointsman.embedders.e5.onnx_format import float_input, node, serialise_model, tensor


def test_a_model_has_the_bytes_that_onnx_writes() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    data = serialise_model(
        "product",
        [
            node("MatMul", ["rows", "weights"], "product", "", {}),
            node("LayerNormalization", ["product", "gain"], "normal", "", {"epsilon": 1e-5, "axis": -1}),
            node("FastGelu", ["normal"], "active", "com.microsoft", {}),
        ],
        [tensor("weights", weights), tensor("gain", np.ones(4, np.float32))],
        [float_input("rows", ["count", 3])],
        [float_input("active", ["count", 4])],
        ir_version=9,
        opsets={"": 18, "com.microsoft": 1},
    )
    nodes = [
        helper.make_node("MatMul", ["rows", "weights"], ["product"], "product", domain=""),
        helper.make_node(
            "LayerNormalization", ["product", "gain"], ["normal"], "normal", domain="", axis=-1, epsilon=1e-5
        ),
        helper.make_node("FastGelu", ["normal"], ["active"], "active", domain="com.microsoft"),
    ]
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.ones(4, np.float32), "gain")]
    inputs = [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["count", 3])]
    outputs = [helper.make_tensor_value_info("active", TensorProto.FLOAT, ["count", 4])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "product", inputs, outputs, constants)
    assert data == helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    onnx.checker.check_model(onnx.load_from_string(data))


@pytest.mark.parametrize("kind", ["float32", "uint8", "int8", "int64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_constants_are_read_back_as_written(kind: str, shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape), dtype=kind).reshape(shape)
    read = numpy_helper.to_array(TensorProto.FromString(tensor("constant", value)))
    assert read.dtype == value.dtype
    assert np.array_equal(read, np.atleast_1d(value)), "a single number has the shape (1,)"


def test_a_type_without_a_number_is_an_error() -> None:
    with pytest.raises(KeyError, match="complex64"):
        tensor("constant", np.ones(2, np.complex64))
