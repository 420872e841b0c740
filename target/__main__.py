"""``python -m target``: the service on an address of its own, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from target import config as options
from target.access_log import AccessLog
from target.app import build_app
from target.door import Door
from target.faults import KINDS, parse_fault
from target.service import Service

EXIT_USAGE = 2


def parser() -> argparse.ArgumentParser:
    """The flags; those that are options of the service are checked by ``target.config`` alone."""
    flags = argparse.ArgumentParser(
        prog="python -m target",
        description="The reference inference service: dynamic batching, FIFO or shared device, replicas, faults on command.",
        epilog=f"Kinds of faults: {', '.join(KINDS)}. docs/target.md has their parameters.",
    )
    flags.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)")
    flags.add_argument("--port", type=int, default=0, help="port (default 0: a free one, which is printed)")
    flags.add_argument("--port-file", type=Path, help="write the port here once the service listens")
    flags.add_argument("--access-log", type=Path, metavar="FILE", help="append one JSON line per answer")
    flags.add_argument("--config-json", metavar="JSON", help="options as a mapping (a scenario's target.embedded); flags win")
    flags.add_argument(
        "--check", action="store_true", help="check the options and end: nothing is served (0, or 2 and a line for each)"
    )
    option = flags.add_argument_group("options (durations as 10ms, 2s or seconds)")
    option.add_argument("--mode", help="batch: t(b) = a + c b; fifo: one at a time; shared: kernels interleave (default batch)")
    option.add_argument("--a", metavar="TIME", help="batch: fixed time per call (default 10ms)")
    option.add_argument("--c", metavar="TIME", help="batch: time per instance (default 0.5ms)")
    option.add_argument("--max-batch", metavar="N", help="most instances per call (default 16)")
    option.add_argument("--max-delay", metavar="TIME", help="longest wait of the oldest for company (default 2ms)")
    option.add_argument("--max-queue", metavar="N", help="most requests waiting per replica; more get 429 (default 1024)")
    option.add_argument("--service", metavar="LAW", help="fifo, shared: exponential, fixed or lognormal (default exponential)")
    option.add_argument("--service-mean", metavar="TIME", help="fifo, shared: mean service time (default 20ms)")
    option.add_argument("--service-cv", metavar="X", help="lognormal: coefficient of variation (default 1)")
    option.add_argument("--replicas", metavar="N", help="replicas behind the address (default 1)")
    option.add_argument("--balance", help="round-robin or least-loaded (default round-robin)")
    option.add_argument(
        "--slow-replica", action="append", metavar="I:FACTOR", help="slow down replica I, such as 1:3x; repeatable"
    )
    option.add_argument("--seed", metavar="N", help="seed of service times and faults (default 0)")
    option.add_argument("--faults", metavar="JSON", help="a list of faults, each a mapping with its kind")
    option.add_argument(
        "--fault", action="append", metavar="KIND[,K=V...]", help="such as throttle,factor=2,start=5s; repeatable"
    )
    option.add_argument("--model", help="simulated, torch-cpu or torch-cuda (default simulated)")
    return flags


def _json(text: str, flag: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise options.ConfigError(f"{flag}: not JSON: {error}") from None


def gather(args: argparse.Namespace) -> options.Config:
    """The service's options from the flags over ``--config-json``. Raises ConfigError."""
    mapping = _json(args.config_json, "--config-json") if args.config_json else {}
    if not isinstance(mapping, dict):
        raise options.ConfigError(f"--config-json: must be a mapping, not {type(mapping).__name__}")
    flags = {name: value for name, value in vars(args).items() if name in options.Config.model_fields and value is not None}
    if args.slow_replica:
        flags["slow_replicas"] = args.slow_replica
    faults = _json(args.faults, "--faults") if args.faults else []
    if not isinstance(faults, list):
        raise options.ConfigError("--faults: must be a list of mappings, each with a kind")
    try:
        faults = faults + [parse_fault(text) for text in args.fault or ()]
    except ValueError as error:
        raise options.ConfigError(str(error)) from None
    if faults:
        flags["faults"] = faults
    else:
        flags.pop("faults", None)
    return options.load(mapping | flags)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises ConfigError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that say they are TCP; with it, every answer (head and body are two
    # writes) waits 40 ms for the client's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise options.ConfigError(f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}") from None
    return sock


def write_port(port_file: Path, port: int) -> None:
    """The port, whole or not at all: a reader never sees half a number."""
    partial = port_file.with_name(port_file.name + ".part")
    partial.write_text(f"{port}\n")
    partial.replace(port_file)


async def _announce(service: Service, server: uvicorn.Server, sock: socket.socket, port_file: Path | None) -> None:
    """Say when it listens and when it is ready; end the server when the port cannot be told or the model cannot be loaded."""
    while not server.started and not server.should_exit:
        await asyncio.sleep(0.005)
    host, port = sock.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        if port_file is not None:
            write_port(port_file, port)
    except OSError as error:
        service.failure = f"--port-file {port_file}: {error.strerror}"
        server.should_exit = True
        return
    print(f"listening on {address}", flush=True)
    await service.ready.wait()
    if service.failure:
        server.should_exit = True
        return
    gc.collect()
    gc.freeze()  # what lives for ever need not be looked at again: full collections would stall the loop
    print(f"ready on {address}", flush=True)


async def serve(service: Service, sock: socket.socket, log: AccessLog | None, port_file: Path | None) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight get up to 5 s."""
    app = build_app(service, log)
    settings = uvicorn.Config(
        Door(app, service, log),
        loop="asyncio",
        http="httptools",
        ws="none",
        lifespan="on",
        # As long as common ingresses keep theirs. With uvicorn's 5 s a service that stood still for longer wakes up, finds its
        # connections "idle", and resets requests that had already reached it.
        timeout_keep_alive=75,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
        backlog=2048,
    )
    server = uvicorn.Server(settings)
    announcing = asyncio.create_task(_announce(service, server, sock, port_file))
    await server.serve(sockets=[sock])
    announcing.cancel()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the service; 0 after a stop by signal, 2 for wrong options."""
    args = parser().parse_args(argv)
    try:
        config = gather(args)
        if args.check:
            return 0
        service = Service(config)
        sock = listen(args.host, args.port)
        log = AccessLog(args.access_log) if args.access_log else None
    except options.ConfigError as error:
        print("\n".join(f"target: {fault}" for fault in error.faults), file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"target: --access-log {args.access_log}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again after its graceful stop: then it is dealt with
    sys.setswitchinterval(0.0005)  # a device's thread that wakes up gets the interpreter within 0.5 ms, not 5
    with sock:
        asyncio.run(serve(service, sock, log, args.port_file))
    if service.failure:
        print(f"target: {service.failure}", file=sys.stderr)
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
