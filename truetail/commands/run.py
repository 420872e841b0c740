"""Run a scenario here: target if embedded, collector, master and workers; then the report and the verdict."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truetail import manifest, roles, target_ready, trace_sidecar, warm_up
from truetail.children import Children, wait_until
from truetail.errors import ExitCode, RunFailed, TargetNotReady, UsageError
from truetail.prepare import prepare
from truetail.progress import Progress
from truetail.scenario import Scenario, load
from truetail.ui import options

MASTER_GRACE_S = 60.0
"""Beyond the master's own deadlines: it ends by itself, this is for a master that hangs."""

UNCHECKED_RPS = 2000.0
"""Planned rate per worker beyond which it is worth asking whether one can send it here: docs/performance.md has what workers were seen to do."""

INTERRUPTED = "interrupted: no more arrivals, waiting for what is in flight (again to leave at once)"

EPILOG = """examples:
  truetail run scenarios/smoke.yaml
  truetail run scenarios/poisson.yaml --workers 2 --set duration=5m
  truetail run scenarios/poisson.yaml --host http://127.0.0.1:8000 --out /tmp/runs

exit codes: 0 PASS, 1 FAIL (an SLO is missed), 2 scenario error, 3 INVALID (the run proves nothing),
            4 the target never became ready, 130 interrupted (a partial report is written)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", type=Path, help="scenario file (YAML)")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: the scenario's fleet.workers)")
    parser.add_argument("--host", metavar="URL", help="test this service instead of the scenario's target")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a scenario value, e.g. arrivals.rate=120/s; repeatable",
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    options.add_arguments(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--quiet", action="store_true", help="no progress, only the verdict")
    shown.add_argument(
        "--json", action="store_true", help="progress as JSON lines on standard error, the summary as JSON on standard output"
    )
    shown.add_argument("--plain", action="store_true", help="progress as plain lines, also in a terminal")


def overrides(args: argparse.Namespace) -> list[str]:
    """The command line's overrides in the scenario's terms."""
    found = list(args.set)
    if args.workers is not None:
        found.append(f"fleet.workers={args.workers}")
    if args.host:
        found += ["target.embedded=null", f"target.url={args.host}"]
    return found


def run(args: argparse.Namespace) -> int:
    """The whole run; returns the verdict's exit code."""
    options.check(args)
    scenario = load(args.scenario, overrides(args))
    locustfile = roles.locustfile_of(scenario.users, args.scenario)
    remark_rate(scenario)
    signal.signal(signal.SIGTERM, as_interrupt)
    resolved = scenario.resolved()
    trace_sidecar.check(resolved)
    folder = prepare(args.out, resolved, args.scenario.name, resolved["target"].get("url") or "")
    try:
        with Children(folder / "logs") as children:
            master = start_fleet(args, resolved, folder, locustfile, children, options.master_environment(args))
            interrupted = follow(master, folder, progress_mode(args))
            _check_begun(folder, interrupted, children)
            trace_sidecar.finish(folder, children)
    except TargetNotReady as error:
        _give_up(folder, "target-not-ready")
        raise TargetNotReady(*error.faults, f"nothing was sent; see {folder}/logs") from None
    except KeyboardInterrupt:
        interrupted = True
    note_end(folder, interrupted)
    return report(args, folder, interrupted)


def remark_rate(scenario: Scenario) -> None:
    """A word on standard error when a worker is to send more than goes without saying."""
    rate = scenario.arrivals.rate
    each_rps = rate.greatest_rps() / scenario.fleet.workers if rate is not None else 0.0
    if each_rps > UNCHECKED_RPS:
        print(
            f"note: up to {each_rps:.4g}/s are planned for each worker; `truetail check SCENARIO --generator` measures what one can send here",
            file=sys.stderr,
        )


def _check_begun(folder: Path, interrupted: bool, children: Children) -> None:
    """A run that never began has nothing to report: say why instead."""
    document = manifest.read(folder)
    if document["stop_reason"] == "scenario":
        raise UsageError(f"{document['stop_text']} (nothing was sent)")
    if document["state"] == "planned" and not interrupted:
        raise RunFailed(f"the master ended before the run began; see {folder}/logs:", children.log_tail("master"))


def as_interrupt(*_: object) -> None:
    """SIGTERM (CI, Kubernetes) means the same as Ctrl-C."""
    raise KeyboardInterrupt


def start_fleet(
    args: argparse.Namespace,
    resolved: Mapping[str, Any],
    folder: Path,
    locustfile: Path,
    children: Children,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start everything; the master's process."""
    _say(
        args,
        "starting the embedded target"
        if resolved["target"].get("embedded") is not None
        else "waiting for the target to be ready",
    )
    url = start_target(resolved, folder, children)
    n_workers = resolved["fleet"]["workers"]
    _say(args, f"target ready at {url}; gathering {n_workers} worker{'s' * (n_workers != 1)}")
    start_collector(resolved, folder, url, children)
    trace_sidecar.start(resolved, folder, children)
    port = roles.free_port()
    command = roles.master(locustfile, folder, ("127.0.0.1", port), options.master_arguments(args))
    master = children.start("master", command, environment)
    for i in range(n_workers):
        children.start(f"worker-{i}", roles.worker(locustfile, f"worker-{i}", ("127.0.0.1", port)))
    options.announce(args)
    return master


def _say(args: argparse.Namespace, text: str) -> None:
    """What is under way before the first figures come."""
    if not (args.quiet or args.json):
        print(text, file=sys.stderr, flush=True)


def progress_mode(args: argparse.Namespace) -> str:
    """How progress is shown."""
    return "quiet" if args.quiet else "json" if args.json else "plain" if args.plain else "auto"


def start_target(resolved: Mapping[str, Any], folder: Path, children: Children) -> str:
    """Start the embedded target if there is one, wait until it is ready, and note it in the manifest; its URL."""
    target, ready = resolved["target"], resolved["target"]["ready"]
    url = str(target.get("url") or "")
    child: subprocess.Popen[bytes] | None = None
    if target.get("embedded") is not None:
        port_file = folder / "logs" / "target.port"
        child = children.start("target", roles.target(target["embedded"], port_file))
        wait_until(lambda: _port(port_file) is not None or child.poll() is not None, ready["deadline_s"])
        port = _port(port_file)
        if port is None:
            if child.poll() == ExitCode.USAGE:
                raise UsageError("target.embedded is refused by the target:", children.log_tail("target"))
            raise TargetNotReady("the embedded target did not start:", children.log_tail("target"))
        url = f"http://127.0.0.1:{port}"
    target_ready.wait_ready(url, ready["path"], ready["deadline_s"], lambda: child is None or child.poll() is None)
    document = manifest.read(folder)
    document["target"] |= {"url": url, "version": target_ready.version(url) if url.startswith("http") else None}
    manifest.write(folder, document)
    return url


def _port(file: Path) -> int | None:
    """The port in a port file; None while it is not there or not whole."""
    try:
        text = file.read_text(encoding="ascii")
    except OSError:
        return None
    return int(text) if text.strip().isdigit() else None


def start_collector(resolved: Mapping[str, Any], folder: Path, url: str, children: Children) -> None:
    """The sidecar beside the run. Without one the run goes on: the report says that nothing was measured."""
    children.start("collector", roles.collector(resolved, folder, url))


def follow(master: subprocess.Popen[bytes], folder: Path, mode: str, ended: Callable[[], bool] = lambda: False) -> bool:
    """Show progress until the master has ended (or ``ended`` says so). Ctrl-C once: stop and drain; twice: leave at once."""
    interrupted = False
    scenario = manifest.read(folder)["scenario"]
    allowed_s = scenario["duration_s"] + scenario["drain_s"] + 3 * scenario["fleet"]["muster_s"] + MASTER_GRACE_S
    allowed_s += warm_up.longest_s(scenario)
    deadline = time.monotonic() + allowed_s
    with Progress(folder, mode) as progress:
        while True:
            try:
                while master.poll() is None and not ended() and time.monotonic() < deadline:
                    progress.update()
                    time.sleep(0.2)
                break
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                print(INTERRUPTED, file=sys.stderr, flush=True)
                master.send_signal(signal.SIGUSR1)
        progress.update()
    return interrupted


def _give_up(folder: Path, reason: str) -> None:
    document = manifest.read(folder)
    document |= {"state": "ended", "stop_reason": reason, "ended_wall_ns": time.time_ns()}
    manifest.write(folder, document)


def note_end(folder: Path, interrupted: bool) -> None:
    """A master that was killed leaves a manifest that says 'running': it stays so, except that we know of an interruption."""
    document = manifest.read(folder)
    if interrupted and document["state"] != "ended":
        _give_up(folder, "interrupted")


def report(args: argparse.Namespace, folder: Path, interrupted: bool) -> int:
    """Build the report, show the verdict; its exit code."""
    from analysis.report import build
    from truetail.commands.report import show

    try:
        summary = build(folder)
    except OSError as error:
        raise RunFailed(f"{folder}: the report cannot be written ({error.strerror})") from None
    show(summary, folder, as_json=args.json)
    return ExitCode.INTERRUPTED if interrupted else int(summary.exit_code)
