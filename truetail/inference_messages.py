"""The messages of the Open Inference Protocol over gRPC that a load test sends, built from their published field numbers.

Describing them here spares generated code; protobuf is imported only when a gRPC user asks for it (extra ``grpc``).
"""

from __future__ import annotations

from typing import Any

SERVICE = "/inference.GRPCInferenceService"

# message: {field: (number, type)}; "*" marks repeated fields, other capitalised types are messages.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ModelReadyRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ModelMetadataRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelMetadataResponse": {"name": (1, "string"), "versions": (2, "*string"), "platform": (3, "string")},
    "InputTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "*int64")},
    "RequestedOutput": {"name": (1, "string")},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "inputs": (5, "*InputTensor"),
        "outputs": (6, "*RequestedOutput"),
        "raw_input_contents": (7, "*bytes"),
    },
    "OutputTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "*int64")},
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "outputs": (5, "*OutputTensor"),
        "raw_output_contents": (6, "*bytes"),
    },
    "ModelStreamInferResponse": {"error_message": (1, "string"), "infer_response": (2, "ModelInferResponse")},
}


def load() -> dict[str, Any]:
    """The message classes by name. Raises ImportError without protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    file = descriptor_pb2.FileDescriptorProto(name="truetail/inference.proto", package="truetail.inference", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    scalar = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES, "bool": kinds.TYPE_BOOL, "int64": kinds.TYPE_INT64}
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            added = message.field.add(name=field, number=number, label=label, type=scalar.get(kind, kinds.TYPE_MESSAGE))
            if kind not in scalar:
                added.type_name = f".truetail.inference.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"truetail.inference.{name}")) for name in _MESSAGES}
