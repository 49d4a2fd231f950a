"""The messages of an ONNX file that the default embedder's graph needs, as bytes.

Numbers of fields are those of the specification (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, version 2
syntax), and each message has its fields in their order, as protobuf's own writer has them
(https://protobuf.dev/programming-guides/encoding). The package ``onnx``, 40 MB with what it needs, would be installed
only to write one file once; the tests compare with what it writes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_VARINT, _LENGTH_DELIMITED, _FIXED_32 = 0, 2, 5  # protobuf's wire types
_FLOAT_ATTRIBUTE, _INTEGER_ATTRIBUTE = 1, 2  # AttributeProto.AttributeType
_FLOAT: Final = 1  # TensorProto.DataType
_DATA_TYPES: Final = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int64": 7}


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative numbers in two's complement
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _field(number: int, *values: float | str | bytes) -> bytes:
    """Return a field of a message: once for each value; messages and texts are given as bytes or str."""
    content = bytearray()
    for value in values:
        if isinstance(value, int):
            content += _varint(number << 3 | _VARINT) + _varint(value)
        elif isinstance(value, float):
            content += _varint(number << 3 | _FIXED_32) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            content += _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(data)) + data
    return bytes(content)


def node(operator: str, inputs: Sequence[str], output: str, domain: str, attributes: Mapping[str, float]) -> bytes:
    """Return a node with one output (``NodeProto``); attributes are integers or floats."""
    attribute_messages = [
        _field(1, name)
        + (
            _field(3, value) + _field(20, _INTEGER_ATTRIBUTE)
            if isinstance(value, int)
            else _field(2, value) + _field(20, _FLOAT_ATTRIBUTE)
        )
        for name, value in sorted(attributes.items())
    ]
    names = _field(1, *inputs) + _field(2, output) + _field(3, output) + _field(4, operator)
    return names + _field(5, *attribute_messages) + _field(7, domain)


def tensor(name: str, value: NDArray[Any]) -> bytes:
    """Return a constant (``TensorProto``); a single number has the shape ``(1,)``.

    Raises:
        KeyError: the type of the array has no number here.
    """
    array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    data_type = _DATA_TYPES[value.dtype.name]
    return _field(1, *array.shape) + _field(2, data_type) + _field(8, name) + _field(9, array.tobytes())


def float_input(name: str, shape: Sequence[int | str]) -> bytes:
    """Return the description of a float32 input or output (``ValueInfoProto``); a text names a size that may vary."""
    dimensions = [_field(2 if isinstance(size, str) else 1, size) for size in shape]
    tensor_type = _field(1, _FLOAT) + _field(2, _field(1, *dimensions))
    return _field(1, name) + _field(2, _field(1, tensor_type))


def serialise_model(
    name: str,
    nodes: Sequence[bytes],
    constants: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    *,
    ir_version: int,
    opsets: Mapping[str, int],
) -> bytes:
    """Return a whole model (``ModelProto``) as a file holds it.

    Args:
        name: the graph's name.
        nodes: from `node`, each after those that it needs.
        constants: from `tensor`.
        inputs: from `float_input`.
        outputs: the same.
        ir_version: the version of the format.
        opsets: the version of the operators, by domain.
    """
    graph = _field(1, *nodes) + _field(2, name) + _field(5, *constants) + _field(11, *inputs) + _field(12, *outputs)
    versions = [_field(1, domain) + _field(2, version) for domain, version in opsets.items()]
    return _field(1, ir_version) + _field(7, graph) + _field(8, *versions)
