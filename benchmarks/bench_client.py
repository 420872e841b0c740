"""CPU time per request of our client beside Locust's FastHttpUser, against nginx on loopback: the ratio is what counts."""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from locust import FastHttpUser  # first: it patches the standard library
from locust.env import Environment

from truetail.http.client import HttpClient

BODY = b'{"t2m_k": 285.4, "rh": 72}' + b" " * 170
CONF = """
worker_processes 1; pid {folder}/pid; error_log {folder}/err; daemon off;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
server {{ listen 127.0.0.1:{port}; location / {{ add_header Server-Timing "queue;dur=1.2, inference;dur=10.5";
add_header x-replica-id 0; add_header x-batch-size 4; default_type application/json; return 200 '{{"y": 0.5, "pad": "{pad}"}}'; }} }} }}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_us(call: Callable[[], object], n: int, rounds: int) -> float:
    """The best of some rounds: CPU time per call in us."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(n):
            call()
        best = min(best, (time.process_time() - begun) / n * 1e6)
    return best


def measure(url: str, n: int, rounds: int) -> dict[str, float]:
    environment = Environment(host=url)

    class Stock(FastHttpUser):
        host = url

    stock = Stock(environment)
    client = HttpClient(url)
    request = client.prepare("POST", "/predict", {"Content-Type": "application/json"}, BODY)
    fire = environment.events.request.fire

    def ours() -> None:
        exchange = client.send(request).exchange
        assert exchange.status == 200
        fire(
            request_type="POST", name="p", response_time=(exchange.done_ns - exchange.sent_ns) / 1e6,
            response_length=exchange.response_bytes, exception=None, context={},
        )  # fmt: skip

    headers = {"Content-Type": "application/json"}
    figures = {
        "FastHttpUser.client.post": cpu_us(
            lambda: stock.client.post("/predict", data=BODY, headers=headers, name="p"), n, rounds
        ),
        "HttpClient.send": cpu_us(lambda: client.send(request), n, rounds),
        "HttpClient.send and the request event": cpu_us(ours, n, rounds),
    }
    assert client.counts.opened == 1, client.counts
    return figures


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=5000)
    arguments.add_argument("--quick", action="store_true", help="fewer requests")
    options = arguments.parse_args()
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(nginx).exists():
        print("nginx is not installed: nothing measured")
        return 0
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "nginx.conf"
        conf.write_text(CONF.format(folder=folder, port=port, pad="x" * 150), encoding="utf-8")
        server = subprocess.Popen([nginx, "-c", str(conf), "-e", f"{folder}/err"])
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            figures = measure(f"http://127.0.0.1:{port}", 1000 if options.quick else options.requests, 3)
        finally:
            server.terminate()
            server.wait()
    stock = figures["FastHttpUser.client.post"]
    for name, value in figures.items():
        print(f"{name:40} {value:7.1f} us CPU  {value / stock:5.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
