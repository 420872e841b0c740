"""What is tested and what is sent: the target and the mix of requests."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from truetail.scenario_types import (
    FilePath,
    FromEnv,
    Headers,
    HttpUrl,
    OptionalDuration,
    Part,
    RequestName,
    RequestPath,
    SomeDuration,
    TargetUrl,
    Unit,
    UrlPath,
)
from truetail.units import shown

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


class Ready(Part):
    """When the target is taken to be ready."""

    path: UrlPath | None = Field(
        default=None,
        description="This path answers 200. Absent: `/readyz` for the embedded target; for a url, that it accepts a connection.",
    )
    deadline: SomeDuration = Field(default=30.0, description="Not ready by then: nothing is sent, exit code 4.")


class Tls(Part):
    """How a https or grpcs target is trusted, and what we show it."""

    ca: FilePath | None = Field(default=None, description="PEM file of the authorities to trust in place of the system's.")
    cert: FilePath | None = Field(default=None, description="PEM file of our client certificate.")
    key: FilePath | None = Field(default=None, description="PEM file of its private key.")
    verify: bool = Field(default=True, description="Whether the target's certificate is checked.")

    @model_validator(mode="after")
    def _pair(self) -> Tls:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: give both or neither")
        return self


class Target(Part):
    """What is tested: a service that runs already, or the reference service started for the run."""

    one_of: ClassVar[tuple[str, ...]] = ("url", "embedded")
    url: TargetUrl | None = Field(default=None, description="A service that runs already: http, https, grpc, grpcs or unix.")
    embedded: dict[str, Any] | None = Field(
        default=None, description="The reference service with these arguments (`python -m target --help`); it checks them itself."
    )
    ready: Ready = Field(default_factory=Ready, description="When it is taken to be ready.")
    headers: Headers = Field(default_factory=dict, description="Sent with every request.")
    auth: FromEnv | None = Field(default=None, description="The Authorization header, from the environment.")
    tls: Tls | None = Field(default=None, description="TLS settings.")
    proxy: HttpUrl | None = Field(default=None, description="HTTP proxy on the way to it.")
    keep_alive: Literal["reuse", "per-request"] = Field(
        default="reuse", description="Connections are kept and used again, or opened anew for every request."
    )

    def resolved(self) -> dict[str, Any]:
        """With the embedded target's path of readiness; ``ready.path`` None means: it accepts a connection."""
        result = super().resolved()
        if self.embedded is not None and self.ready.path is None:
            result["ready"]["path"] = "/readyz"
        return result


Status = Annotated[int, Field(ge=100, le=599)]


def _statuses(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class Expect(Part):
    """What a right answer looks like; anything else is a failure."""

    status: Annotated[
        list[Status] | None,
        BeforeValidator(lambda value: None if value is None else _statuses(value)),
        Unit("", "status or list"),
    ] = Field(default=None, min_length=1, description="Status that is a success, or a list of them; any 2xx when absent.")
    contains: str | None = Field(default=None, max_length=10_000, description="Text that the body must contain.")
    json_: dict[str, Any] | None = Field(default=None, alias="json", description="Keys and values that the JSON body must hold.")

    def resolved(self) -> dict[str, Any]:
        """``status`` is a number, a list of numbers, or None for any 2xx."""
        result = super().resolved()
        if self.status is not None and len(self.status) == 1:
            result["status"] = self.status[0]
        return result


class Request(Part):
    """One entry of the mix."""

    name: RequestName = Field(description="What statistics and SLO lines call it.")
    weight: float = Field(default=1.0, gt=0, le=1e9, description="How often it is drawn, relative to the others.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "${row.method}"] | None = Field(
        default=None, description="HTTP method, or that of the trace's row; when absent POST with a body, else GET."
    )
    path: RequestPath = Field(default="/", description="Path and query.")
    json_: Any = Field(default=None, alias="json", description="Body, sent as JSON.")
    body: str | None = Field(default=None, max_length=2**20, description="Body, sent as it stands.")
    headers: Headers = Field(default_factory=dict, description="Sent with this request, beside the target's.")
    deadline: OptionalDuration = Field(default=None, description="Total time allowed; the scenario's deadline when absent.")
    expect: Expect = Field(default_factory=Expect, description="What a right answer looks like.")
    protocol: dict[str, Any] = Field(default_factory=dict, description="Free settings for the locustfile's protocol.")
    payload: dict[str, Any] = Field(default_factory=dict, description="Free settings for the locustfile's payloads.")

    @model_validator(mode="after")
    def _one_body(self) -> Request:
        if self.json_ is not None and self.body is not None:
            raise ValueError("found json and body; allowed is at most one of them")
        return self

    def resolved(self) -> dict[str, Any]:
        """With the method that is meant; ``deadline_s`` None until the scenario fills it in."""
        has_body = self.json_ is not None or self.body is not None
        return super().resolved() | {"method": self.method or ("POST" if has_body else "GET")}


def check_mix(requests: list[Request]) -> list[Request]:
    """Names are unique: statistics and SLO lines go by them."""
    first: dict[str, int] = {}
    for index, request in enumerate(requests):
        if request.name in first:
            raise ValueError(
                f"entries {first[request.name]} and {index} are both named {shown(request.name)}; names must be unique"
            )
        first[request.name] = index
    return requests
