"""What the collector's tests share: the fake NVML library, reading JSONL files, a small HTTP server."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

GPU = {
    "gpu": 97, "mem_util": 40, "mem_total": 80 << 30, "mem_used": 30 << 30, "mem_reserved": 1 << 30, "power_mw": 350_500,
    "power_limit_mw": 700_000, "temp": 71, "clock.1": 1410, "clock.2": 2619, "maxclock.1": 1980, "reasons": 4, "pcie.0": 100,
    "pcie.1": 200, "ecc.0": 3, "ecc.1": 0, "mig": 0, "field.83": 5_000_000, "field.186": 351_000, "field.82": 66,
    "field.197": 1 << 40, "field.198": 1 << 41, "field.74": 7_000, "proc.0.pid": 4242, "proc.0.mem": 1 << 30,
    "gpm": 1, "gpm.1": 97.5, "gpm.2": 42.25, "gpm.3": 20.0, "gpm.5": 10.0, "gpm.10": 33.0, "gpm.20": 2.0, "pstate": 0,
}  # fmt: skip


def build(folder: Path, *flags: str) -> Path:
    """Compile the fake library into ``folder``; skips where there is no C compiler."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc to build the fake NVML library")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "fake_nvml.c"
    command = [
        "gcc",
        "-O1",
        "-Wall",
        "-Werror",
        "-Wno-misleading-indentation",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnvidia-ml.so.1",
        *flags,
        "-o",
        str(library),
    ]
    subprocess.run([*command, str(source), "-lpthread"], check=True)
    return library


class FakeNvml:
    """The fake's state: GPUs and faults as a dict of its file's keys, written whole at every change."""

    def __init__(self, folder: Path, library: Path, gpus: int = 2) -> None:
        self.library, self.path = library, folder / "nvml_state.txt"
        self.state: dict[str, Any] = {"loaded": 1, "count": gpus, "xid_seq": 0}
        for index in range(gpus):
            self.state |= {f"{index}.{key}": value for key, value in GPU.items()}
        self.set()

    def set(self, changes: dict[str, Any] | None = None, without: tuple[str, ...] = ()) -> None:
        """Change keys, remove others, and write the file so that no call sees half of it."""
        self.state |= changes or {}
        for key in without:
            self.state.pop(key, None)
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{key} {value}\n" for key, value in self.state.items()))
        new.replace(self.path)

    def environment(self) -> dict[str, str]:
        """For a process of its own: the library found by the loader, as on a machine with a driver."""
        return {**os.environ, "FAKE_NVML_STATE": str(self.path), "LD_LIBRARY_PATH": str(self.library.parent)}


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library, built once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(tmp_path: Path, fake_library: Path) -> FakeNvml:
    """Two fake GPUs for a collector in a process of its own."""
    return FakeNvml(tmp_path, fake_library)


@pytest.fixture
def nvml_here(tmp_path: Path, fake_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Two fake GPUs for pynvml in this very process: its CDLL finds the library already loaded under the same soname."""
    import pynvml

    fake = FakeNvml(tmp_path, fake_library)
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake.path))
    library = ctypes.CDLL(str(fake_library), mode=ctypes.RTLD_GLOBAL)
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield fake
    while library.nvmlShutdown() == 0:
        pass


def lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a JSONL file, strictly parsed: any that is not JSON fails the test."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not strict JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def samples(path: Path) -> list[dict[str, Any]]:
    """The sample lines of a collector's file."""
    return [line for line in lines(path) if "values" in line]


@pytest.fixture
def read_lines() -> Callable[[Path], list[dict[str, Any]]]:
    """``lines`` as a fixture, since test modules cannot import this file."""
    return lines


@pytest.fixture
def read_samples() -> Callable[[Path], list[dict[str, Any]]]:
    """``samples`` as a fixture."""
    return samples


class Served:
    """A loopback HTTP server whose answer the test sets: (status, body) or a function that writes to the socket."""

    def __init__(self) -> None:
        self.answer: Any = (200, b"")
        self.requests: list[dict[str, str]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.requests.append({"path": self.path, **dict(self.headers)})
                if callable(served.answer):
                    served.answer(self)
                    return
                status, body = served.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def served() -> Iterator[Served]:
    """A server on a free loopback port."""
    it = Served()
    yield it
    it.server.shutdown()
    it.server.server_close()


@pytest.fixture
def collect() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``python -m collector`` with the given arguments; whatever is still running at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "collector", *arguments]
        process = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any], float], Any]:
    """Waits for a condition; a generous deadline, so that a busy machine does not fail the test."""

    def wait(condition: Callable[[], Any], deadline_s: float = 20.0) -> Any:
        import time

        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError("the condition was not met in time")

    return wait
