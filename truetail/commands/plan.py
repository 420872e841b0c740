"""Capacity from theory, before anything is sent. Traffic is taken to be Poisson; docs/theory.md has the formulas and their sources.

examples:
  truetail plan replicas --slo "p99 < 250ms" --peak 120/s --service 20ms
  truetail plan batch --a 10ms --c 0.5ms --rate 400/s --slo "p99 < 50ms" --delay 0ms --delay 2ms
  truetail plan fanout --backends 100 --slow 1%
  truetail plan requests --percentile 99 --utilisation 50% --rate 400/s
  truetail plan queue --rate 45/s --service 20ms --cv 0
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from analysis import capacity, fanout, queueing, sample_size
from analysis.batching import BatchTime
from truetail.errors import ExitCode, UsageError
from truetail.slo import Slo
from truetail.slo import parse as parse_slo
from truetail.units import format_duration_s, parse_duration_s, parse_rate_rps, parse_share

Rows = Sequence[Sequence[str]]
Answer = tuple[dict[str, Any], list[str], Sequence[str], Rows]
"""Plain JSON, lines of text, a table's header and its rows."""


def _with(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of units for argparse: its ValueError's text becomes the error."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


duration, rate, share = _with(parse_duration_s), _with(parse_rate_rps), _with(parse_share)


def latency_slo(text: str) -> Slo:
    """An SLO line on a percentile of the response time. Raises ValueError for any other."""
    slo = parse_slo(text)
    if slo.kind != "percentile" or slo.metric != "response" or slo.name or slo.ppm is None or slo.ppm >= 1_000_000:
        raise ValueError(f"planning needs a line like 'p99 < 250ms' (a percentile of the response time), found {text!r}")
    return slo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each question."""
    what = parser.add_subparsers(dest="what", required=True, metavar="QUESTION")
    for name, (answer, summary, options) in QUESTIONS.items():
        own = what.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        for flags, settings in options:
            own.add_argument(*flags, **settings)
        own.add_argument("--json", action="store_true", help="print JSON instead of tables")
        own.set_defaults(answer=answer)


def run(args: argparse.Namespace) -> int:
    """Answer the question. Raises UsageError where theory has no answer (unstable, unreachable, nonsense)."""
    try:
        data, lines, header, rows = args.answer(args)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if args.json:
        print(json.dumps(data, indent=1, allow_nan=False))
        return ExitCode.PASS
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if rows:
        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    return ExitCode.PASS


def _ms(seconds: float | None) -> str:
    return "no steady state" if seconds is None else f"{1e3 * seconds:.4g} ms"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def replicas(args: argparse.Namespace) -> Answer:
    """How many replicas an SLO needs at the peak."""
    q, limit_s = args.slo.ppm / 1e6, args.slo.limit
    highest = capacity.highest_rate_rps(q, limit_s, args.service, args.law)
    needed = capacity.replicas_for(q, limit_s, args.peak, args.service, args.law)
    shared = capacity.shared_queue_replicas(q, limit_s, args.peak, args.service) if args.law == "exponential" else None
    plans = [
        capacity.replica_plan(n, q, limit_s, args.peak, args.service, args.law) for n in range(max(1, needed - 2), needed + 3)
    ]
    lines = [
        f"{needed} replicas, traffic spread evenly, meet {args.slo.text} at {args.peak:g}/s; each may take at most {highest:.1f}/s",
        capacity.SERVICE_LAWS[args.law],
    ]
    if shared is not None and shared < needed:
        lines.append(f"behind one common queue (M/M/c) {shared} would do")
    data = {
        "replicas": needed, "highest_rate_each_rps": highest, "shared_queue_replicas": shared, "law": args.law,
        "plans": [{"replicas": p.replicas, "rate_each_rps": p.rate_each_rps, "utilisation": p.utilisation,
                   "quantile_s": p.quantile_s, "meets": p.meets} for p in plans],
    }  # fmt: skip
    rows = [
        [str(p.replicas), f"{p.rate_each_rps:.4g}/s", f"{p.utilisation:.0%}", _ms(p.quantile_s), "yes" if p.meets else "no"]
        for p in plans
    ]
    return data, lines, ["replicas", "each", "utilisation", f"p{args.slo.percentile}", "meets"], rows


def batch(args: argparse.Namespace) -> Answer:
    """Batch size and delay for an SLO, by simulation of the exact rule."""
    time = BatchTime(args.a, args.c)
    q, limit_s, each = args.slo.ppm / 1e6, args.slo.limit, args.rate / args.replicas
    sizes = sorted(set(args.max_batch or capacity.BATCHES))
    plans = capacity.batch_plans(time, q, limit_s, each, args.delay or [0.0, 0.002, 0.005], sizes)
    best = capacity.best_batch_plan(plans, each, args.headroom)
    lines = [
        f"t(b) = {format_duration_s(args.a)} + {format_duration_s(args.c)} b; no batch size exceeds {time.limit_rps:.4g}/s per replica"
    ]
    if best is None:
        lines.append(f"no setting meets {args.slo.text} at {each:g}/s with {args.headroom:g} times the capacity: add replicas")
    else:
        lines.append(
            f"batches of at most {best.rule.max_batch}, delay {1e3 * best.rule.max_delay_s:g} ms: p{args.slo.percentile} "
            f"{_ms(best.quantile_s)} at {each:g}/s, capacity {best.capacity_rps:.4g}/s"
        )
        found = capacity.highest_batch_rate_rps(time, best.rule, q, limit_s)
        lines.append(f"this setting meets {args.slo.text} up to about {found:.0f}/s per replica")
    return {
        "rate_each_rps": each, "limit_rps": _finite(time.limit_rps), "headroom": args.headroom,
        "best": None if best is None else _batch_json(best), "plans": [_batch_json(p) for p in plans],
    }, lines, ["max batch", "delay ms", "capacity /s", "b*", "t(B) ms", "batch", "mean ms", f"p{args.slo.percentile} ms", "alone ms", "meets"], [
        [
            str(p.rule.max_batch), f"{1e3 * p.rule.max_delay_s:g}", f"{p.capacity_rps:.4g}", _cell(p.fixed_point), _cell(p.full_batch_s, 1e3),
            _cell(p.mean_batch), _cell(p.mean_s, 1e3), _cell(p.quantile_s, 1e3), _cell(p.idle_s, 1e3), "yes" if p.meets else "no",
        ] for p in plans
    ]  # fmt: skip


def _cell(value: float | None, scale: float = 1.0) -> str:
    return "-" if value is None else f"{scale * value:.4g}"


def _batch_json(plan: capacity.BatchPlan) -> dict[str, Any]:
    return {
        "max_batch": plan.rule.max_batch, "max_delay_s": plan.rule.max_delay_s, "capacity_rps": plan.capacity_rps,
        "fixed_point": plan.fixed_point, "full_batch_s": plan.full_batch_s, "alone_s": plan.idle_s, "mean_batch": plan.mean_batch,
        "mean_s": plan.mean_s, "quantile_s": plan.quantile_s, "meets": plan.meets,
    }  # fmt: skip


def fan_out(args: argparse.Namespace) -> Answer:
    """What waiting for n backends does to the tail."""
    slow = fanout.slow_share(args.slow, args.backends)
    allowed = fanout.slow_share_allowed(args.allowed, args.backends)
    percentile = fanout.backend_percentile(args.percentile, args.backends)
    lines = [
        f"{slow:.3g} of the user's requests are slow ({slow:.1%}) when each of {args.backends} backends is slow in {args.slow:.3g}",
        f"for at most {args.allowed:.3g} of them to be slow, a backend may be slow in {allowed:.3g} ({100 * allowed:.3g} %)",
        f"the user's p{args.percentile:g} is a backend's p{percentile:.6g}",
        "backends are taken to be independent; measure it with the fanout locustfile",
    ]
    return {"slow_share": slow, "backend_slow_share_allowed": allowed, "backend_percentile": percentile}, lines, [], []


def requests(args: argparse.Namespace) -> Answer:
    """How many requests a percentile needs at an expected utilisation."""
    plan = sample_size.plan(args.percentile, args.utilisation, args.half_width)
    lines = [
        f"{plan.n} requests for p{args.percentile:g} within +-{args.half_width:.0%} at utilisation {args.utilisation:.0%} "
        f"(variance inflation {plan.vif:.3g}); below {plan.claim_n} no two-sided claim can be made",
    ]
    fewest = sample_size.fewest_n(args.percentile, plan.vif)
    lines.append(
        f"a run claims that p{args.percentile:g} lies below a limit from {fewest} requests on, if none is slower than the limit"
    )
    if args.rate:
        lines.append(f"at {args.rate:g}/s that takes {plan.n / args.rate:.0f} s, the warm-up not counted")
    lines.append("of a simulated M/M/1 queue: fix the length before the run, and never repeat a run until it passes")
    others = [sample_size.plan(args.percentile, u, args.half_width) for u in sample_size.UTILISATIONS]
    rows = [[f"{p.utilisation:.0%}", f"{p.vif:.3g}", f"{p.claim_n:,}", f"{p.precise_n:,}"] for p in others]
    data = {
        "percentile": plan.percentile, "utilisation": plan.utilisation, "half_width": plan.half_width, "vif": plan.vif,
        "fewest_n": fewest, "claim_n": plan.claim_n, "precise_n": plan.precise_n, "n": plan.n,
        "duration_s": plan.n / args.rate if args.rate else None,
    }  # fmt: skip
    return data, lines, ["utilisation", "VIF", "any claim", f"+-{args.half_width:.0%}"], rows


def queue(args: argparse.Namespace) -> Answer:
    """Means and percentiles of one queue."""
    if args.arrival_cv == 1 and args.cv == 1:
        steady = queueing.mmc(args.rate, args.service, args.servers)
    elif args.arrival_cv == 1 and args.servers == 1:
        steady = queueing.mg1(args.rate, args.service, args.cv) if args.cv else queueing.md1(args.rate, args.service)
    else:
        steady = queueing.ggc(args.rate, args.service, args.servers, args.arrival_cv, args.cv)
    quantile: Callable[[float], float] | None = None
    if args.arrival_cv == args.cv == 1:
        quantile = lambda q: queueing.mmc_quantile_s(q, args.rate, args.service, args.servers)  # noqa: E731
    elif args.arrival_cv == 1 and args.cv == 0 and args.servers == 1:
        quantile = lambda q: queueing.md1_quantile_s(q, args.rate, args.service)  # noqa: E731
    found = {f"p{100 * q:g}": quantile(q) for q in (0.5, 0.95, 0.99, 0.999)} if quantile else {}
    lines = [
        f"{steady.model}, utilisation {steady.utilisation:.1%}: wait {_ms(steady.wait_mean_s)}, response {_ms(steady.response_mean_s)} "
        f"in the mean, {steady.in_system_mean:.4g} inside",
        ", ".join(f"{name} {_ms(value)}" for name, value in found.items())
        or "percentiles: only for M/M/c and M/D/1; simulate or measure",
        f"{'exact' if steady.exact else 'an approximation'}: {steady.source}",
    ]
    data = {
        "model": steady.model, "source": steady.source, "exact": steady.exact, "utilisation": steady.utilisation,
        "wait_mean_s": steady.wait_mean_s, "response_mean_s": steady.response_mean_s, "in_system_mean": steady.in_system_mean,
        "quantiles_s": found,
    }  # fmt: skip
    return data, lines, [], []


def _option(*flags: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return flags, settings


SLO = _option("--slo", required=True, type=_with(latency_slo), help='what must hold, like "p99 < 250ms"')
RATE = _option("--rate", required=True, type=rate, help="arrivals, like 400/s")
SERVICE = _option("--service", required=True, type=duration, help="mean service time of one request, like 20ms")
QUESTIONS: Mapping[str, tuple[Callable[[argparse.Namespace], Answer], str, Iterable[tuple[tuple[str, ...], dict[str, Any]]]]] = {
    "replicas": (replicas, "how many replicas meet an SLO at the peak", (
        SLO, _option("--peak", required=True, type=rate, help="peak arrival rate, like 120/s"), SERVICE,
        _option("--law", choices=list(capacity.SERVICE_LAWS), default="exponential", help="how service times vary (default: %(default)s)"),
    )),
    "batch": (batch, "batch size and queue delay for an SLO", (
        _option("--a", required=True, type=duration, help="fixed time of a batch, like 10ms"),
        _option("--c", required=True, type=duration, help="time each request adds, like 0.5ms"), RATE, SLO,
        _option("--replicas", type=int, choices=range(1, 10_001), metavar="N", default=1, help="split the rate evenly over so many"),
        _option("--max-batch", type=int, choices=range(1, 4097), metavar="B", action="append", help="a size to try; repeatable"),
        _option("--delay", type=duration, action="append", help="a queue delay to try; repeatable (default: 0, 2 and 5 ms)"),
        _option("--headroom", type=float, default=2.0, help="capacity wanted over the rate, for bursts (default: %(default)s)"),
    )),
    "fanout": (fan_out, "what waiting for many backends does to the tail", (
        _option("--backends", required=True, type=int, metavar="N", help="how many a request waits for"),
        _option("--slow", type=share, default=0.01, help="share of a backend's answers that are slow (default: 1%%)"),
        _option("--allowed", type=share, default=0.05, help="share of the user's requests that may be slow (default: 5%%)"),
        _option("--percentile", type=float, default=99.0, help="the user's percentile (default: %(default)s)"),
    )),
    "requests": (requests, "how many requests a percentile needs", (
        _option("--percentile", type=float, default=99.0, help="default: %(default)s"),
        _option("--utilisation", type=share, default=0.5, help="expected utilisation of the service (default: 50%%)"),
        _option("--half-width", type=share, default=0.1, help="wished precision (default: 10%%)"),
        _option("--rate", type=rate, help="arrivals, to tell how long that takes"),
    )),
    "queue": (queue, "means and percentiles of one queue", (
        RATE, SERVICE, _option("--servers", type=int, default=1, metavar="N", help="servers behind the queue (default: 1)"),
        _option("--cv", type=float, default=1.0, help="coefficient of variation of service times (default: 1, exponential)"),
        _option("--arrival-cv", type=float, default=1.0, help="of gaps between arrivals (default: 1, Poisson)"),
    )),
}  # fmt: skip
