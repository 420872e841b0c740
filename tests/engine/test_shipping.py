"""Shipping of records: the master's copy is always a prefix of the worker's file, whatever the network does to messages."""

import os

import numpy as np
import pytest
from pydantic import ValidationError

from truetail.shipping import CHUNK_BYTES, Chunk, Receiver, Shipped, Shipper


@pytest.mark.parametrize("seed", range(8))
def test_lost_doubled_and_late_messages_lose_nothing(tmp_path, seed):
    """With chunks and answers lost, doubled and delayed at random the copy ends equal to the file, and is a prefix all the way."""
    rng = np.random.default_rng(seed)
    (tmp_path / "w").mkdir()
    rows, names = tmp_path / "w" / "a.rec", tmp_path / "w" / "a.names.jsonl"
    rows.write_bytes(b"")
    names.write_bytes(b"n" * 100)
    network: list[tuple[str, dict]] = []
    shipper = Shipper(tmp_path / "w", "a", lambda data: network.append(("chunk", data)))
    receiver = Receiver(tmp_path / "m")
    now_s = 0.0
    for step in range(3000):
        now_s += 0.5
        if step < 40:
            with rows.open("ab") as file:
                file.write(os.urandom(int(rng.integers(0, 2 * CHUNK_BYTES))))
        done = shipper.pump(now_s)
        if done and step >= 40:
            break
        rng.shuffle(network)
        arriving, network[:] = network[:3], network[3:]
        for kind, data in arriving:
            for _ in range(int(rng.integers(0, 3))):  # lost, delivered, or delivered twice
                if kind == "chunk":
                    network.append(("answer", receiver.take("a", Chunk.model_validate(data)).model_dump()))
                else:
                    shipper._sent_at_s.pop(data["file"], None)
                    shipper._acked[data["file"]] = max(shipper._acked[data["file"]], data["end"])
        copy = tmp_path / "m" / "a.rec"
        if copy.exists():
            assert rows.read_bytes().startswith(copy.read_bytes())
    assert done
    assert (tmp_path / "m" / "a.rec").read_bytes() == rows.read_bytes()
    assert (tmp_path / "m" / "a.names.jsonl").read_bytes() == names.read_bytes()


def test_answers_drive_the_next_chunk(tmp_path):
    """A file of several chunks goes over without waiting for the clock: each answer sends the next."""
    (tmp_path / "a.rec").write_bytes(os.urandom(3 * CHUNK_BYTES + 5))
    receiver = Receiver(tmp_path / "m")
    sent: list[dict] = []
    shipper = Shipper(tmp_path, "a", sent.append)
    shipper.pump(0.0)
    while sent:
        shipper.acknowledged(receiver.take("a", Chunk.model_validate(sent.pop())))
    assert (tmp_path / "m" / "a.rec").read_bytes() == (tmp_path / "a.rec").read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"file": "../x", "offset": 0, "data": b""},
        {"file": "rows", "offset": -1, "data": b""},
        {"file": "rows", "offset": 0, "data": "text"},
        {"file": "rows", "offset": 1.5, "data": b""},
        {"file": "rows", "offset": 0, "data": bytes(CHUNK_BYTES + 1)},
        {"file": "rows", "offset": 1 << 60, "data": b""},
        {"file": "rows", "offset": 0, "data": b"", "path": "/etc/passwd"},
    ],
)
def test_hostile_chunks_are_refused(data):
    """Only the two known files, sane offsets, bounded bytes."""
    with pytest.raises(ValidationError):
        Chunk.model_validate(data)


def test_a_gap_is_never_filled_with_nothing(tmp_path):
    """A chunk beyond the end of the copy is not written; the answer says where the copy ends."""
    receiver = Receiver(tmp_path)
    assert receiver.take("a", Chunk(file="rows", offset=10, data=b"x")) == Shipped(file="rows", end=0)
    assert (tmp_path / "a.rec").read_bytes() == b""
