"""The base of Truetail's LoadTestShapes: a planned arrival pattern in a locustfile.

``locust -f my_users.py,shapes/poisson.py --rate 50`` or, in a locustfile of your own::

    from shapes.poisson import PoissonShape

    class Mornings(PoissonShape):
        rate_rps = 50
        duration_s = 60

The shape asks Locust for one constant number of users, the pool; *when* each request is sent is in the schedule, which Truetail's engine hands
to user classes with the mixin ``truetail.open_loop.OpenLoop``. Without that mixin Locust's users are a closed loop, and the shape says so.

Locust makes an instance of every shape class that it finds in a locustfile and runs the first, unless the class has ``abstract = True``, which Locust does
not inherit. A class here becomes abstract as soon as it has a subclass, so that importing ``PoissonShape`` to build on it is safe.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from locust import LoadTestShape, events

from shapes.schedule import Schedule

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.runners import Runner

log = logging.getLogger("truetail.shapes")

OPTIONS: tuple[tuple[str, str, float | int | str, str], ...] = (
    ("rate", "rate_rps", 0.0, "Mean arrivals per second, of the hour burst the base rate"),
    ("duration-s", "duration_s", 0.0, "Seconds during which arrivals are due"),
    ("drain-s", "drain_s", -1.0, "Seconds after that for requests to finish"),
    ("seed", "seed", -1, "Seed of the schedule; 0 is a seed like any other"),
    ("pool", "pool", 0, "Users per worker: the most requests in flight, a cap and not the load"),
    ("cv", "cv", 0.0, "Coefficient of variation of gamma gaps: 1 is Poisson, above is burstier"),
    ("clients", "clients", -1, "Hour burst: clients that poll once a period"),
    ("period-s", "period_s", 0.0, "Hour burst: seconds between bursts"),
    ("jitter", "jitter", "", "Hour burst: law of the clients' jitter: uniform, exponential or normal"),
    ("jitter-width-s", "jitter_width_s", 0.0, "Hour burst: width of the jitter in seconds"),
    ("burst-align", "burst_align", "", "Hour burst: start (of the run) or wall-clock"),
    ("burst-offset-s", "burst_offset_s", -1.0, "Hour burst: seconds into the period at which the burst is"),
)
"""Option, attribute, default, help. The default stands for "as the shape says"; Locust's web UI needs it to have the option's type."""


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser, **_: Any) -> None:
    """Once per parser: a directory of locustfiles may have this module imported under two names."""
    if "--duration-s" in parser._option_string_actions:
        return
    group = parser.add_argument_group(
        "Truetail shapes", "Arrival pattern of the shape; each option in place of the shape's attribute"
    )
    for name, attribute, default, text in OPTIONS:
        group.add_argument(
            f"--{name}", dest=attribute, type=type(default), default=default, env_var=f"TRUETAIL_{attribute.upper()}".removesuffix("_RPS"),
            help=f"{text} (default: the shape's own)",
        )  # fmt: skip


class OpenLoopShape(LoadTestShape):
    """A constant pool of users for the length of a planned schedule. Subclasses say the rate and the spacing."""

    abstract = True

    rate_rps: float = 10.0
    duration_s: float = 60.0
    drain_s: float = 15.0
    seed: int = 42
    pool: int = 100
    _runner: Runner | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__[1:]:
            if issubclass(base, OpenLoopShape):
                base.abstract = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._users: int | None = None
        self._failed = False

    @property
    def runner(self) -> Runner | None:
        """The runner, which Locust attaches once options have been read."""
        return self._runner

    @runner.setter
    def runner(self, runner: Runner | None) -> None:
        self._runner = runner
        self._take_options()

    def rate(self) -> dict[str, Any]:
        """The rate, as a resolved scenario has it."""
        return {"kind": "constant", "rate_rps": self.rate_rps}

    def spacing(self) -> dict[str, Any]:
        """The spacing, as a resolved scenario has it."""
        raise NotImplementedError(f"{type(self).__name__} has no spacing()")

    def arrivals(self) -> dict[str, Any]:
        """``{"rate": ..., "spacing": ...}``: what the schedule is made of."""
        return {"rate": self.rate(), "spacing": self.spacing()}

    def schedule(self, epoch_wall_s: float = 0.0) -> Schedule:
        """The arrivals of this shape; ``epoch_wall_s`` is the wall time of t = 0. Raises ValueError, naming field and remedy."""
        return Schedule(self.arrivals(), self.duration_s, self.seed, epoch_wall_s)

    def reset_time(self) -> None:
        """Locust's only call at each start (twice on a master): options may have been changed in the web UI since."""
        super().reset_time()  # type: ignore[no-untyped-call]
        self._users, self._failed = None, False
        self._take_options()

    def tick(self) -> tuple[int, float] | None:
        """The same pool all the time, then None when the run is over.

        An error ends the test with exit code 2. Raising here would not: under the web UI Locust would keep the load at its last level.
        """
        try:
            return None if self._failed or self._finished() else self._pool()
        except Exception as error:
            self._failed = True
            log.error("%s: %s", type(self).__name__, error, exc_info=not isinstance(error, ValueError))
            if self.runner is not None:
                self.runner.environment.process_exit_code = 2
            return None

    def _pool(self) -> tuple[int, float]:
        if self._users is None:
            schedule = self.schedule()  # checks all fields before anything is sent
            if self.pool < 1:
                raise ValueError(f"pool: found {self.pool}; allowed is a whole number from 1 on")
            self._users = int(self.pool) * max(1, int(getattr(self.runner, "worker_count", 1)))
            if self._engine() is None:
                self._warn(schedule)
        return self._users, float(self._users)

    def _finished(self) -> bool:
        engine = self._engine()
        if engine is not None:
            return bool(engine.finished())
        return self._seconds() > self.duration_s + max(self.drain_s, 0.0)

    def _seconds(self) -> float:
        return float(self.get_run_time())  # type: ignore[no-untyped-call]

    def _engine(self) -> Any:
        """Truetail's engine, if its plugin has put one there."""
        return getattr(self.runner.environment, "truetail", None) if self.runner is not None else None

    def _warn(self, schedule: Schedule) -> None:
        log.warning(
            "%s plans about %.0f arrivals in %g s, but nothing here takes them: no user class has the OpenLoop mixin, so this run is a CLOSED loop of %d users "
            "that ignores the arrival pattern. Remedy: from truetail.open_loop import OpenLoop; class MyUser(OpenLoop, FastHttpUser): ...",
            type(self).__name__, schedule.expected_count, self.duration_s, self._users,
        )  # fmt: skip

    def _take_options(self) -> None:
        """Options given on the command line, by environment or in the web UI stand above the attributes of the class."""
        options = self._runner.environment.parsed_options if self._runner is not None else None
        for _, attribute, default, _ in OPTIONS:
            vars(self).pop(attribute, None)
            value = getattr(options, attribute, default)
            if value != default:
                setattr(self, attribute, type(default)(value))
