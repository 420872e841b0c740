"""The input contract: the lesson's two weather fields, optional further inputs, and a size."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from target.model import Row

MOST_INSTANCES = 64
LARGEST_BODY_BYTES = 1 << 20

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Observation(BaseModel):
    """One instance. ``t2m_k`` and ``rh`` are required unless ``x`` is given; ``size`` scales what it costs."""

    model_config = ConfigDict(extra="forbid")

    x: list[Finite] | None = Field(default=None, max_length=10_000, description="further inputs")
    size: Finite = Field(default=1.0, gt=0, le=10_000, description="cost of this input; 1 is usual")
    t2m_k: Finite | None = Field(default=None, gt=180, lt=340, validate_default=True, description="temperature at 2 m, K")
    rh: Finite | None = Field(default=None, ge=0, le=100, validate_default=True, description="relative humidity, %")

    @field_validator("t2m_k", "rh")
    @classmethod
    def _required_without_x(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("x") is None:
            raise PydanticCustomError("missing", "Field required (unless x is given)")
        return value

    def row(self) -> Row:
        """What the model reads; a field that was left out takes a usual value."""
        t2m_k = 285.0 if self.t2m_k is None else self.t2m_k
        return t2m_k, 70.0 if self.rh is None else self.rh, sum(self.x) if self.x else 0.0


_ONE = TypeAdapter(Observation)
_LIST = TypeAdapter(list[Observation])
_ANY = TypeAdapter(list[Any])


class Rejected(Exception):
    """The request's content cannot be served: ``status`` 413 or 422, ``detail`` says why (plain JSON values)."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail


def read_one(body: bytes) -> Observation:
    """The instance in a /predict body. Raises Rejected (422) with every reason."""
    try:
        return _ONE.validate_json(body)
    except ValidationError as error:
        raise Rejected(422, reasons(error)) from None


def read_list(body: bytes) -> list[Observation]:
    """The instances in a /predict_batch body, at least one. Raises Rejected: 413 over MOST_INSTANCES, 422 otherwise."""
    try:
        if body.count(b"{") > MOST_INSTANCES and len(_ANY.validate_json(body)) > MOST_INSTANCES:
            raise Rejected(413, f"at most {MOST_INSTANCES} instances in a batch")
        instances = _LIST.validate_json(body)
    except ValidationError as error:
        raise Rejected(422, reasons(error)) from None
    if not instances:
        raise Rejected(422, [{"loc": ["body"], "msg": "the batch is empty", "type": "too_short"}])
    return instances


def reasons(error: ValidationError) -> list[dict[str, Any]]:
    """At most 20 reasons in the shape FastAPI gives them; the input is not echoed (it may be NaN, or huge)."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"loc": ["body", *map(_short, item["loc"])], "msg": item["msg"], "type": item["type"]} for item in found[:20]]


def _short(part: int | str) -> int | str:
    return part if isinstance(part, int) else part[:60]
