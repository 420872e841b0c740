"""The Open Inference Protocol over HTTP: requests in JSON or with the binary tensor extension, and what a right answer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truetail.http.answer import Answer
from truetail.http.checks import parse_json
from truetail.http.errors import Failure
from truetail.http.mix import as_json
from truetail.payloads.tensors import Tensor

LENGTH_HEADER = "Inference-Header-Content-Length"


def encode(tensors: Sequence[Tensor], seed: int, variant: int, binary: bool, outputs: Sequence[str]) -> tuple[bytes, int]:
    """(body, length of its JSON part) of one variant of the request."""
    values = [(tensor, tensor.values(seed, variant)) for tensor in tensors]
    request: dict[str, Any] = {"id": f"v{variant}"}
    raw: list[bytes] = []
    if binary:
        raw = [tensor.as_bytes(value) for tensor, value in values]
        request["inputs"] = [
            tensor.head() | {"parameters": {"binary_data_size": len(data)}} for (tensor, _), data in zip(values, raw, strict=True)
        ]
        request["parameters"] = {"binary_data_output": True}
    else:
        request["inputs"] = [tensor.as_json(value) for tensor, value in values]
    if outputs:
        request["outputs"] = [{"name": name} for name in outputs]
    head = as_json(request)
    return b"".join([head, *raw]), len(head)


def outputs_of(answer: Answer) -> list[Mapping[str, Any]]:
    """The outputs that an answer describes. Raises Failure: malformed or wrong-content."""
    body = answer.body
    length = answer.headers.get(LENGTH_HEADER.lower(), "")
    head = body
    if length:
        if not length.isdecimal() or int(length) > len(body):
            raise Failure("malformed", "length of the JSON part")
        head = body[: int(length)]
    document = parse_json(head)
    outputs = document.get("outputs") if isinstance(document, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise Failure("wrong-content", "no outputs")
    if length:
        sizes = [(output.get("parameters") or {}).get("binary_data_size", 0) for output in outputs]
        if not all(isinstance(size, int) for size in sizes) or sum(sizes) != len(body) - len(head):
            raise Failure("malformed", "binary sizes do not add up")
    return outputs
