"""An OpenAI-compatible stream whose emission instants are known: ``python benchmarks/token_server.py PORT FILE``.

Every token is written the moment its CLOCK_MONOTONIC instant has been taken. The first word of a prompt is the request's number; FILE gets
a line ``{"k": number, "emitted_ns": [...]}`` for each stream once it has ended, so that stamping costs no bytes on the wire and no waiting.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import IO, Any

PREFILL_S = 0.05
GAP_S = 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"tok "},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN_CHUNK, END = chunk(TOKEN), chunk(DONE) + chunk(b"")


async def stream(body: dict[str, Any], writer: asyncio.StreamWriter, out: IO[str]) -> None:
    """Prefill, then a token every GAP_S at its own absolute instant."""
    due_s = time.monotonic() + PREFILL_S
    writer.write(HEAD)
    emitted_ns = []
    for _ in range(int(body["max_tokens"])):
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        due_s += GAP_S
        emitted_ns.append(time.monotonic_ns())
        writer.write(TOKEN_CHUNK)
    writer.write(END)
    await writer.drain()
    number = str(body["messages"][0]["content"]).partition(" ")[0]
    out.write(json.dumps({"k": int(number), "emitted_ns": emitted_ns}) + "\n")
    out.flush()


async def main(port: int, out: IO[str]) -> None:
    """Serve until killed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if head.startswith("post"):
                    await stream(json.loads(body), writer, out)
                else:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", encoding="utf-8") as file:
        asyncio.run(main(int(sys.argv[1]), file))
