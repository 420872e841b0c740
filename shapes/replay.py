"""Replayed traffic: ``locust -f my_users.py,shapes/replay.py --trace azure.csv --trace-mode poisson --duration-s 60``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locust import events

from shapes.open_loop import OpenLoopShape

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser

TRACE_OPTIONS: tuple[tuple[str, str, float | str, str], ...] = (
    ("trace", "trace", "", "The trace: a file, or the folder of a run"),
    ("trace-format", "trace_format", "", "Its format; auto finds out"),
    ("trace-mode", "trace_mode", "", "exact, poisson, fixed or model"),
    ("trace-speed", "trace_speed", 0.0, "Time is compressed by this factor"),
    ("trace-from-s", "trace_from_s", -1.0, "Start this many seconds after the trace's first arrival"),
)
"""Option, attribute, default, help, as in :data:`shapes.open_loop.OPTIONS`."""


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser, **_: Any) -> None:
    if "--trace" in parser._option_string_actions:
        return
    group = parser.add_argument_group(
        "Truetail replay", "The trace of ReplayShape; each option in place of the shape's attribute"
    )
    for name, attribute, default, text in TRACE_OPTIONS:
        variable = f"TRUETAIL_{attribute.upper()}"
        help_text = f"{text} (default: the shape's own)"
        group.add_argument(f"--{name}", dest=attribute, type=type(default), default=default, env_var=variable, help=help_text)


class ReplayShape(OpenLoopShape):
    """The arrivals of a trace, by every timestamp or by a process fitted to them; ``trace_more`` holds further fields of a
    scenario's trace.

    Its rate is the trace's, so ``--rate`` has no influence.
    """

    trace: str = ""
    trace_format: str = "auto"
    trace_mode: str = "exact"
    trace_speed: float = 1.0
    trace_from_s: float = 0.0
    trace_more: dict[str, Any] = {}  # noqa: RUF012 - replaced as a whole in subclasses, never changed

    def arrivals(self) -> dict[str, Any]:
        """``{"trace": ...}``, as a resolved scenario has it."""
        said = {"file": self.trace, "format": self.trace_format, "mode": self.trace_mode, "speed": self.trace_speed}
        return {"trace": said | {"window_from_s": self.trace_from_s} | self.trace_more}

    def spacing(self) -> dict[str, Any]:
        """None of its own: a trace brings its spacing."""
        raise ValueError("ReplayShape: a trace brings its own spacing; choose trace_mode")

    def _take_options(self) -> None:
        super()._take_options()
        options = self._runner.environment.parsed_options if self._runner is not None else None
        for _, attribute, default, _ in TRACE_OPTIONS:
            vars(self).pop(attribute, None)
            value = getattr(options, attribute, default)
            if value != default:
                setattr(self, attribute, type(default)(value))
