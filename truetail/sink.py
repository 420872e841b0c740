"""``python -m truetail.sink``: a server that answers anything at once, so that only the generator's own limits show.

It speaks enough HTTP/1.1 for our clients: bodies by Content-Length, keep-alive, one request at a time on a connection. What an answer must hold to
be taken as right differs by protocol, so the path decides: KServe's ``/infer`` gets an output, streamed completions get tokens as
server-sent events, lists of models are not there (404, which skips their check), all else gets ``{}``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path

TOKENS = 16
MOST_TOKENS = 256
TOKEN_PERIOD_S = 0.002
MOST_REQUEST_BYTES = 64 << 20
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})\r\n", re.IGNORECASE)
STREAMED = re.compile(rb'"stream": ?true')
TOKENS_ASKED = re.compile(rb'"max_tokens": ?(\d{1,6})')


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A whole response."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


ANYTHING = answer(b"{}")
NOT_THERE = answer(b"{}", "404 Not Found")
INFERRED = answer(b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[0.0]}]}')
COMPLETED = answer(
    b'{"choices":[{"index":0,"text":"a","message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _event(data: str) -> bytes:
    """A server-sent event as a chunk."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


TOKEN = _event(json.dumps({"choices": [{"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": None}]}))
STREAM_END = _event("[DONE]") + b"0\r\n\r\n"


class Sink(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request; a head without an end, or a body beyond all bounds, closes the connection."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[: end + 2]
            length = LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if whole > MOST_REQUEST_BYTES:
                break
            if len(self._buffer) < whole:
                return
            body, self._buffer = self._buffer[end + 4 : whole], self._buffer[whole:]
            self._answer(head[: head.find(b"\r\n")], body)
        if len(self._buffer) > 1 << 16:
            self._transport.close()

    def _answer(self, line: bytes, body: bytes) -> None:
        parts = line.split(b" ")
        path = parts[1].partition(b"?")[0] if len(parts) > 1 else b"/"
        if path.endswith(b"completions") and STREAMED.search(body):
            asked = TOKENS_ASKED.search(body)
            self._transport.write(STREAM_HEAD)
            self._stream(min(int(asked[1]) if asked else TOKENS, MOST_TOKENS))
        elif path.endswith(b"completions"):
            self._transport.write(COMPLETED)
        elif path.endswith(b"/infer"):
            self._transport.write(INFERRED)
        elif path.endswith(b"/models") and line.startswith(b"GET"):
            self._transport.write(NOT_THERE)
        else:
            self._transport.write(ANYTHING)

    def _stream(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left <= 0:
            self._transport.write(STREAM_END)
            return
        self._transport.write(TOKEN)
        asyncio.get_running_loop().call_later(TOKEN_PERIOD_S, self._stream, left - 1)


async def serve(port_file: Path) -> None:
    """Serve on a free loopback port, which is written to ``port_file``, until cancelled."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0, backlog=4096)
    scratch = port_file.with_suffix(".part")
    scratch.write_text(str(server.sockets[0].getsockname()[1]), encoding="ascii")
    scratch.replace(port_file)
    await server.serve_forever()


def main() -> None:
    """Until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written")
    asyncio.run(serve(parser.parse_args().port_file))


if __name__ == "__main__":
    main()
