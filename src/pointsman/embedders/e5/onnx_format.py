"""The messages of an ONNX file that the default embedder's graph needs, for the ``protobuf`` that onnxruntime brings.

Field numbers are those of the specification (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, version 2
syntax); the package ``onnx``, 40 MB with what it needs, would be installed only to write one file once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Field(NamedTuple):
    number: int
    kind: str  # of protobuf, or the name of a message
    is_repeated: bool = False


_MESSAGES: Final[Mapping[str, Mapping[str, _Field]]] = {
    "ModelProto": {
        "ir_version": _Field(1, "int64"),
        "graph": _Field(7, "GraphProto"),
        "opset_import": _Field(8, "OperatorSetIdProto", is_repeated=True),
    },
    "OperatorSetIdProto": {"domain": _Field(1, "string"), "version": _Field(2, "int64")},
    "GraphProto": {
        "node": _Field(1, "NodeProto", is_repeated=True),
        "name": _Field(2, "string"),
        "initializer": _Field(5, "TensorProto", is_repeated=True),
        "input": _Field(11, "ValueInfoProto", is_repeated=True),
        "output": _Field(12, "ValueInfoProto", is_repeated=True),
    },
    "NodeProto": {
        "input": _Field(1, "string", is_repeated=True),
        "output": _Field(2, "string", is_repeated=True),
        "name": _Field(3, "string"),
        "op_type": _Field(4, "string"),
        "attribute": _Field(5, "AttributeProto", is_repeated=True),
        "domain": _Field(7, "string"),
    },
    "AttributeProto": {
        "name": _Field(1, "string"),
        "f": _Field(2, "float"),
        "i": _Field(3, "int64"),
        "type": _Field(20, "int32"),
    },
    "TensorProto": {
        "dims": _Field(1, "int64", is_repeated=True),
        "data_type": _Field(2, "int32"),
        "name": _Field(8, "string"),
        "raw_data": _Field(9, "bytes"),
    },
    "ValueInfoProto": {"name": _Field(1, "string"), "type": _Field(2, "TypeProto")},
    "TypeProto": {"tensor_type": _Field(1, "TensorTypeProto")},
    "TensorTypeProto": {"elem_type": _Field(1, "int32"), "shape": _Field(2, "TensorShapeProto")},
    "TensorShapeProto": {"dim": _Field(1, "DimensionProto", is_repeated=True)},
    "DimensionProto": {"dim_value": _Field(1, "int64"), "dim_param": _Field(2, "string")},
}

_FLOAT_ATTRIBUTE, _INTEGER_ATTRIBUTE = 1, 2  # AttributeProto.AttributeType
_FLOAT: Final = 1  # TensorProto.DataType
_DATA_TYPES: Final = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int64": 7}


@cache
def _message_types() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # only when a graph is written

    file = descriptor_pb2.FileDescriptorProto(name="pointsman/onnx.proto", package="pointsman.onnx", syntax="proto2")
    field_type = descriptor_pb2.FieldDescriptorProto
    for message, fields in _MESSAGES.items():
        description = file.message_type.add(name=message)
        for name, field in fields.items():
            label = field_type.LABEL_REPEATED if field.is_repeated else field_type.LABEL_OPTIONAL
            field_proto = description.field.add(name=name, number=field.number, label=label)
            if field.kind in _MESSAGES:
                field_proto.type, field_proto.type_name = field_type.TYPE_MESSAGE, f".pointsman.onnx.{field.kind}"
            else:
                field_proto.type = field_type.Type.Value(f"TYPE_{field.kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pointsman.onnx.{message}"))
        for message in _MESSAGES
    }


def node(operator: str, inputs: Sequence[str], output: str, domain: str, attributes: Mapping[str, float]) -> Any:
    """Return a node with one output; attributes are integers or floats."""
    attributes_by_name = [
        _message_types()["AttributeProto"](name=name, i=value, type=_INTEGER_ATTRIBUTE)
        if isinstance(value, int)
        else _message_types()["AttributeProto"](name=name, f=value, type=_FLOAT_ATTRIBUTE)
        for name, value in sorted(attributes.items())
    ]
    return _message_types()["NodeProto"](
        input=inputs, output=[output], name=output, op_type=operator, attribute=attributes_by_name, domain=domain
    )


def tensor(name: str, value: NDArray[Any]) -> Any:
    """Return a constant; a single number has the shape ``(1,)``.

    Raises:
        KeyError: the type of the array has no number here.
    """
    array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    data_type = _DATA_TYPES[value.dtype.name]
    return _message_types()["TensorProto"](dims=array.shape, data_type=data_type, name=name, raw_data=array.tobytes())


def float_input(name: str, shape: Sequence[int | str]) -> Any:
    """Return the description of a float32 input or output; a string names a dimension of any size."""
    dimensions = [{"dim_param": size} if isinstance(size, str) else {"dim_value": size} for size in shape]
    tensor_type = {"elem_type": _FLOAT, "shape": {"dim": dimensions}}
    return _message_types()["ValueInfoProto"](name=name, type={"tensor_type": tensor_type})


def serialise_model(
    name: str,
    nodes: Sequence[Any],
    constants: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    ir_version: int,
    opsets: Mapping[str, int],
) -> bytes:
    """Return a whole model as a file holds it.

    Args:
        name: the graph's name.
        nodes: from `node`, each after those that it needs.
        constants: from `tensor`.
        inputs: from `float_input`.
        outputs: the same.
        ir_version: the version of the format.
        opsets: the version of the operators, by domain.
    """
    graph = _message_types()["GraphProto"](name=name, node=nodes, initializer=constants, input=inputs, output=outputs)
    versions = [
        _message_types()["OperatorSetIdProto"](domain=domain, version=version) for domain, version in opsets.items()
    ]
    content: bytes = _message_types()["ModelProto"](
        ir_version=ir_version, graph=graph, opset_import=versions
    ).SerializeToString()
    return content
