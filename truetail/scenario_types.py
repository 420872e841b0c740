"""What the parts of a scenario are made of: fields that know their unit, and parts that know their exclusive keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from truetail.units import parse_duration_s, parse_rate_rps, parse_share, parse_size_bytes, shown

MOST_RATE_RPS = 1e7
LONGEST_S = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks a field's type: the suffix of its resolved name, and how the type is called in the reference."""

    suffix: str
    called: str


class Part(BaseModel):
    """A mapping of the scenario: unknown keys are refused and nothing is converted but units.

    ``one_of`` names keys of which exactly one must be given.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=False)
    one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        fault = one_of_fault(self.one_of, {key for key in self.one_of if getattr(self, key) is not None})
        if fault:
            raise ValueError(fault)
        return self

    def resolved(self) -> dict[str, Any]:
        """Plain JSON in canonical units: a duration ``drain`` becomes ``drain_s`` in seconds, and so on."""
        result = {}
        for name, info in type(self).model_fields.items():
            suffix = next((mark.suffix for mark in info.metadata if isinstance(mark, Unit)), "")
            result[(info.alias or name) + suffix] = plain(getattr(self, name))
        return result


def one_of_fault(one_of: tuple[str, ...], given: set[str]) -> str | None:
    """What is wrong when exactly one of ``one_of`` is due and ``given`` are given; None when nothing is."""
    if not one_of or len(given) == 1:
        return None
    found = " and ".join(key for key in one_of if key in given) or "none of them"
    return f"found {found}; allowed is exactly one of {', '.join(one_of)}"


def plain(value: Any) -> Any:
    """``value`` with every Part in it resolved."""
    if isinstance(value, Part):
        return value.resolved()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def _within(parse: Callable[[object], float], most: float, text: str, zero: bool = True) -> Callable[[object], float]:
    def check(value: object) -> float:
        number = parse(value)
        if number > most:
            raise ValueError(f"found {shown(value)}; allowed is at most {text}")
        if number == 0 and not zero:
            raise ValueError(f"found {shown(value)}; allowed is more than 0")
        return number

    return check


# Duration and Rate may be 0; the Some... forms may not.
_duration = _within(parse_duration_s, LONGEST_S, "366d")
_some_duration = _within(parse_duration_s, LONGEST_S, "366d", zero=False)
_rate = _within(parse_rate_rps, MOST_RATE_RPS, "10M/s")
_some_rate = _within(parse_rate_rps, MOST_RATE_RPS, "10M/s", zero=False)
_SECONDS, _PER_SECOND = Unit("_s", "duration"), Unit("_rps", "rate")

Duration = Annotated[float, BeforeValidator(_duration), _SECONDS]
SomeDuration = Annotated[float, BeforeValidator(_some_duration), _SECONDS]
# Optional forms: pydantic keeps a mark inside of a union to itself, so the mark stands outside.
OptionalDuration = Annotated[
    float | None, BeforeValidator(lambda value: None if value is None else _some_duration(value)), _SECONDS
]
Rate = Annotated[float, BeforeValidator(_rate), _PER_SECOND]
SomeRate = Annotated[float, BeforeValidator(_some_rate), _PER_SECOND]
Size = Annotated[int, BeforeValidator(parse_size_bytes), Unit("_bytes", "size")]
Share = Annotated[float, BeforeValidator(parse_share), Unit("", "share")]


def matching(pattern: str, allowed: str) -> AfterValidator:
    """A validator of text: the whole of it matches ``pattern``, or the error says what is ``allowed``."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"found {shown(value)}; allowed is {allowed}")
        return value

    return AfterValidator(check)


RunName = Annotated[str, matching(r"[a-z0-9][a-z0-9_-]{0,63}", "a name of a-z, 0-9, _ and -, at most 64 characters")]
RequestName = Annotated[
    str, matching(r"[^\[\]\x00-\x1f\x7f]{1,100}", "a name of 1 to 100 characters without brackets or control characters")
]
UrlPath = Annotated[str, matching(r"/[^\s\x00-\x1f\x7f]{0,4000}", "a path that starts with / and has no blanks")]
RequestPath = Annotated[
    str,
    matching(
        r"(?:/|\$\{(?:row|line)\.)[^\s\x00-\x1f\x7f]{0,4000}", "a path that starts with /, ${row. or ${line. and has no blanks"
    ),
]
EnvName = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of an environment variable, like API_TOKEN")]
HeaderText = Annotated[str, matching(r"[^\x00-\x08\x0a-\x1f\x7f]{0,8000}", "text without line breaks or control characters")]
FilePath = Annotated[str, matching(r"[^\x00]{1,1000}", "a path to a file"), Unit("", "path")]


class FromEnv(Part):
    """A secret: the value of an environment variable, read by each worker when it starts and never written anywhere."""

    env: EnvName = Field(description="Name of the environment variable that holds the value.")
    prefix: HeaderText = Field(default="", description="Put before the value, such as `Bearer `.")


def _header_value(value: Any) -> Any:
    if isinstance(value, (str, dict, FromEnv)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"found {shown(value)}; allowed is text, or a secret as {{env: NAME}}")


# The tags begin with <, so that faults can leave them out of a field's path.
HeaderValue = Annotated[
    Annotated[HeaderText, Tag("<text>")] | Annotated[FromEnv, Tag("<env>")],
    Discriminator(lambda value: "<env>" if isinstance(value, (dict, FromEnv)) else "<text>"),
    BeforeValidator(_header_value),
    Unit("", "text or `{env: NAME}`"),
]

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})


def check_headers(headers: dict[str, Any]) -> dict[str, Any]:
    """Header names are tokens, each once whatever its case; secrets come from the environment, not from the file."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", name):
            raise ValueError(f"header {shown(name)} is no header's name")
        if name.lower() in seen:
            raise ValueError(f"header {shown(name)} stands here twice, in different case")
        seen.add(name.lower())
        if name.lower() in SECRET_HEADERS and not isinstance(value, FromEnv):
            raise ValueError(
                f"header {name} is a secret: write {{env: NAME}} in place of its text, and set NAME in the environment"
            )
    return headers


Headers = Annotated[dict[str, HeaderValue], AfterValidator(check_headers), Unit("", "mapping of headers")]


def check_url(schemes: tuple[str, ...]) -> AfterValidator:
    """A validator of URLs: a scheme of ``schemes``, a host, a port that exists, no user or password."""

    def check(value: str) -> str:
        allowed = f"a URL like {schemes[0]}://127.0.0.1:8000 ({', '.join(schemes)})"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"found {shown(value)} ({error}); allowed is {allowed}") from None
        has_place = parts.path if parts.scheme == "unix" else parts.hostname
        if parts.scheme not in schemes or not has_place or port == 0 or re.search(r"\s|[\x00-\x1f\x7f]", value):
            raise ValueError(f"found {shown(value)}; allowed is {allowed}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL must not hold a user or password: use auth: {env: NAME}")
        if parts.query or parts.fragment:
            raise ValueError(f"found {shown(value)}; allowed is {allowed} without ? or #")
        return value

    return AfterValidator(check)


TargetUrl = Annotated[str, check_url(("http", "https", "grpc", "grpcs", "unix")), Unit("", "URL")]
HttpUrl = Annotated[str, check_url(("http", "https")), Unit("", "URL")]
