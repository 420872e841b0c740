"""A replayed log through two workers: every request arrives as it was logged, and a session's requests in their order."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.usefixtures("no_child_left")]


@pytest.fixture
def recorder():
    """A server that keeps (method, path, body) of what it gets, in order of arrival."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path.startswith("/s"):  # not the questions that Truetail asks about readiness and version
                seen.append((self.command, self.path, body.decode()))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_and_sessions(runs, recorder, tmp_path):
    """Method, path and body of each of 200 rows once; sessions, whose requests lie 60 ms apart, are sent in order by one worker."""
    url, seen = recorder
    rng = np.random.default_rng(5)
    rows = [
        {"time": round(0.2 + 0.003 * n, 3), "session": f"s{n % 20}", "method": ("POST", "PUT")[n % 2],
         "path": f"/s{n % 20}/{n // 20}", "body": "x" * int(rng.integers(1, 400))} for n in range(200)
    ]  # fmt: skip
    trace = tmp_path / "log.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arrivals = {"trace": {"file": str(trace), "mode": "exact"}}
    done = runs.run(
        target={"url": url}, users="http", requests=[], arrivals=arrivals, duration="3s", warmup="0s", lateness_deadline="30s"
    )
    assert done.manifest["ledger"]["ok"] == 200, done.out + done.err
    assert Counter(seen) == Counter((row["method"], row["path"], row["body"]) for row in rows)
    records = done.rows()
    for session in range(20):
        mine = np.sort(records[np.isin(records["k"], range(session, 200, 20))], order="k")
        assert (np.diff(mine["sent_ns"]) > 0).all(), session
    parts = [pq.read_table(file, columns=["k"])["k"].to_pylist() for file in (done.folder / "records").glob("*.parquet")]
    workers = {k: number for number, part in enumerate(parts) for k in part}
    assert {len({workers[n] for n in range(session, 200, 20)}) for session in range(20)} == {1}
    assert len(set(workers.values())) == 2
