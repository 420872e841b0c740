"""What of a target's /version page goes into the manifest: JSON as it is, bounded whatever a stranger's page holds."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from truetail.target_ready import DEEPEST, LONGEST_TEXT, MOST_ITEMS, version


@pytest.fixture
def told():
    """A function: what `version` makes of a page with these bytes."""
    pages = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(pages[-1])

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def ask(page):
        pages.append(page)
        return version(f"http://127.0.0.1:{server.server_port}")

    yield ask
    server.shutdown()
    thread.join()
    server.server_close()


def test_json_stays_json(told):
    """Numbers, lists and mappings are kept as they are, to be read by any JSON parser."""
    page = {"service": "x", "version": 3, "config": {"a": 0.01, "faults": [{"kind": "pause", "at": None}], "on": True}}
    assert told(json.dumps(page).encode()) == page


@pytest.mark.parametrize(
    "page",
    [
        json.dumps({"deep": [[[[[[[[[[1]]]]]]]]]], "long": "x" * 9000, "many": list(range(900)), "large": 10**40}).encode(),
        b'{"a": NaN, "b": -Infinity, "c": 1e999}',
    ],
)
def test_a_strangers_page_is_bounded(told, page):
    """Depth, lengths and numbers: what is kept is strict JSON of a few kB."""
    found = told(page)
    text = json.dumps(found, allow_nan=False)
    assert len(text) < 2 * LONGEST_TEXT + 10 * MOST_ITEMS
    assert text.count("[") <= DEEPEST + 1


@pytest.mark.parametrize("page", [b"", b"no json", b"[1]", b"[" * 60_000, b"1" * 5000])
def test_no_page_of_that_kind(told, page):
    """Not JSON, or no mapping: nothing is told."""
    assert told(page) is None
