"""Real servers, each from its own environment under build/real, on free loopback ports; without the environment the test is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import HERE, environment_of, free_ports, running, wait_for

from benchmarks import triton_server


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with the model ``plain``: {http, grpc, metrics} as host:port."""
    with triton_server.triton(
        environment_of("triton"), HERE / "triton_models", tmp_path_factory.mktemp("triton") / "log"
    ) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """llama.cpp's server with a tiny random model: its base URL."""
    folder = environment_of("llama")
    (port,) = free_ports(1)
    command = [folder / "bin" / "python", HERE / "llama_app.py", folder / "tiny.gguf", str(port)]
    with running(command, tmp_path_factory.mktemp("llama") / "log", f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    """vLLM on the CPU with a tiny random model: its base URL. Eight sequences at most are decoded at once."""
    folder = environment_of("vllm")
    (port,) = free_ports(1)
    command = [
        folder / "bin" / "vllm", "serve", folder / "tiny", "--served-model-name", "tiny", "--dtype", "float32", "--host", "127.0.0.1",
        "--port", str(port), "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager",
    ]  # fmt: skip
    variables = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "VLLM_HOST_IP": "127.0.0.1", "HOST_IP": "127.0.0.1",
    }  # fmt: skip
    with running(command, tmp_path_factory.mktemp("vllm") / "log", f"http://127.0.0.1:{port}/health", 240, variables):
        yield f"http://127.0.0.1:{port}"


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
