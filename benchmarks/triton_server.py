"""A real Triton (CPU) from the environment of tests/real/install_triton.sh, and its own trace as an access log."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

READY_S = 60.0
STOP_S = 40.0


@contextmanager
def triton(folder: Path, models: Path, output: Path, trace: Path | None = None) -> Iterator[dict[str, str]]:
    """Triton from ``folder`` serving all of ``models`` on free loopback ports: {http, grpc, metrics} as host:port and URL.

    ``output`` takes what it prints; with ``trace`` it writes the instants of every request there (whole once this is left).
    Raises RuntimeError when it ends or is not ready in a minute.
    """
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    parts = site / "pytriton" / "tritonserver"
    asks = [folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"]
    libdir = subprocess.run(asks, capture_output=True, text=True, check=True).stdout.strip()
    libraries = [libdir, str(parts / "external_libs"), str(site / "nvidia_pytriton.libs")]
    variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    http, grpc, metrics = _free_ports(3)
    command = [
        parts / "bin" / "tritonserver", f"--model-repository={models}", f"--backend-directory={folder / 'backends'}",
        "--http-address=127.0.0.1", f"--http-port={http}", "--grpc-address=127.0.0.1", f"--grpc-port={grpc}",
        "--metrics-address=127.0.0.1", f"--metrics-port={metrics}", "--allow-gpu-metrics=false",
        f"--backend-config=python,shm-region-prefix-name=truetail{os.getpid()}",
    ]  # fmt: skip
    if trace:
        command += ["--trace-config=mode=triton", f"--trace-config=triton,file={trace}", "--trace-config=level=TIMESTAMPS"]
        command += ["--trace-config=rate=1", "--trace-config=count=-1"]
    with output.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=variables) as process:
        try:
            _wait_ready(f"http://127.0.0.1:{http}/v2/health/ready", process)
            yield {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}", "metrics": f"http://127.0.0.1:{metrics}/metrics"}
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"Triton ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer 200 within {READY_S:g} s")


def write_access_log(trace: Path, log: Path, path: str) -> int:
    """Triton's trace as lines of the reference service's access log; how many.

    A request lasts from the first byte received to the answer handed over (HTTP_RECV_START to HTTP_SEND_START). Triton stamps with
    the monotonic clock; one offset makes wall times of it. Raises ValueError for a request that has no answer.
    """
    wall_ns = time.time_ns() - time.monotonic_ns()
    instants: dict[int, dict[str, int]] = {}
    for event in json.loads(trace.read_text(encoding="utf-8")):
        for stamp in event.get("timestamps", []):
            instants.setdefault(event["id"], {})[stamp["name"]] = stamp["ns"]
    lines: list[dict[str, Any]] = []
    for number, seen in instants.items():
        if "HTTP_RECV_START" not in seen or "HTTP_SEND_START" not in seen:
            raise ValueError(f"{trace}: request {number} has {sorted(seen)} and no whole exchange")
        took_ns = seen["HTTP_SEND_START"] - seen["HTTP_RECV_START"]
        lines.append(
            {"path": path, "status": 200, "arrived_wall_ns": wall_ns + seen["HTTP_RECV_START"], "duration_us": took_ns / 1e3}
        )
    lines.sort(key=lambda line: line["arrived_wall_ns"])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return len(lines)
