"""Hostile bytes and values in every message and every file that the master or the analysis reads: refused, never a crash or a wrong number.

More than 10,000 cases in all, from fixed seeds.
"""

import json
import math
import random
import shutil
from types import SimpleNamespace

import pytest

from analysis.run_folder import RunFolderError, open_run
from tests.analysis.run_folders import Plan, rows_of, write_run
from truetail import messages
from truetail.fleet import Fleet, State
from truetail.histogram import Histogram
from truetail.inbox import Inbox
from truetail.messages import Hello, Planned
from truetail.shipping import CHUNK_BYTES

MESSAGE_CASES = 9000
FILE_CASES = 1500
DIGEST = "a" * 64


class Master:
    """What the inbox needs of a master; remembers what it was told."""

    def __init__(self, folder):
        self.folder, self.digest, self.count = folder, DIGEST, 100
        self.fleet = Fleet(2)
        self.events, self.stops = [], []
        self.takes_in = False
        self.clock = SimpleNamespace(pong=lambda seq, mono_ns: None)

    def event(self, kind, text, **fields):
        json.dumps([kind, text, fields], allow_nan=False)
        self.events.append((kind, text))

    def stop(self, reason, text=""):
        self.stops.append(reason)


class Runner:
    """A runner that delivers to registered listeners."""

    def __init__(self):
        self.listeners = {}

    def register_message(self, kind, listener, concurrent=False):
        self.listeners[kind] = listener

    def send_message(self, kind, data, client_id=None):
        pass


def valid(kind, rng):
    """A well-formed message of a kind."""
    histogram = Histogram()
    for _ in range(3):
        histogram.record_ns(rng.randrange(10**9))
    ledger = {"scheduled": 50, "sent": 3, "dropped": 0, "unsent": 47, "ok": 3, "failed": 0, "timed_out": 0, "abandoned": 0}
    generator = {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5}
    snapshot = {
        "seq": rng.randrange(1, 10**6), "at_ns": 10**9, "ledger": ledger, "in_flight": 0, "idle": 1, "backlog": 0, "last_handed_k": 3,
        "generator": generator, "series": {"response": rng.choice([histogram.to_json, histogram.to_wire])()}, "trouble": "",
    }  # fmt: skip
    return {
        messages.HELLO: {"name": "w9", "host": "h", "pid": 1, "boot_id": "b", "versions": {"locust": "2"}},
        messages.PLANNED: {"digest": DIGEST, "count": 100, "slot_count": 50, "fault": ""},
        messages.POOLED: {"users": 5},
        messages.PONG: {"seq": 1, "mono_ns": 5},
        messages.SNAPSHOT: snapshot,
        messages.DRAINED: {"snapshot": snapshot, "rows": 3, "lapsed": False},
        messages.TOOK: {"generation": 1, "scheduled": 5},
        messages.CHUNK: {"file": "rows", "offset": 0, "data": b"x" * 112},
    }[kind]


def hostile(rng):
    """Something that does not belong there."""
    choices = (
        None, True, -1, 0, 1 << 70, -(1 << 70), 1.5, math.nan, math.inf, -math.inf, "", "x" * 2000, "../../etc/passwd", "<script>", "=1+1", "\x00\x1b[2J",
        b"", b"\xff" * 300, bytes(CHUNK_BYTES + 1), [], {}, [[]] * 50, {"a": {"b": {}}}, {1: 2}, {"counts": {"1": -5}}, [1, 2, 3], "NaN", {"n": 1e308},
    )  # fmt: skip
    return rng.choice(choices)


def mutated(data, rng):
    """The message with one to three places changed, removed, added or replaced wholly."""
    if rng.random() < 0.1:
        return hostile(rng)
    data = json.loads(json.dumps(data, default=lambda b: {"bytes": len(b)})) if rng.random() < 0.5 else dict(data)
    for _ in range(rng.randrange(1, 4)):
        place = data
        while True:
            keys = list(place) if isinstance(place, dict) else []
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], dict) and rng.random() < 0.7:
                place[key] = dict(place[key])
                place = place[key]
                continue
            action = rng.randrange(4)
            if action == 3 and isinstance(place[key], str | bytes) and place[key]:
                cut = rng.randrange(len(place[key]))
                place[key] = place[key][:cut] + rng.choice([place[key][:0], place[key][-1:] * 3]) + place[key][cut + 1 :]
            elif action == 0:
                place[key] = hostile(rng)
            elif action == 1:
                del place[key]
            else:
                place[f"k{rng.randrange(9)}"] = hostile(rng)
            break
    return data


@pytest.mark.parametrize("seed", range(3))
def test_hostile_messages(tmp_path, seed):
    """Whatever comes in, from members and strangers: no exception, sane ledger, strict JSON on disk, no file outside the run folder."""
    rng = random.Random(seed)
    folder = tmp_path / "run"
    folder.mkdir()
    master, runner = Master(folder), Runner()
    for name in ("a", "b"):
        member = master.fleet.hello(name, Hello(name=f"w-{name}", host="h", pid=1, boot_id="b", versions={}))
        master.fleet.planned(name, Planned(digest=DIGEST, count=100, slot_count=50), DIGEST, 100)
        member.state = State.RUNNING
    Inbox(master, runner).register()
    kinds = list(runner.listeners)
    for _ in range(MESSAGE_CASES // 3):
        kind = rng.choice(kinds)
        message = SimpleNamespace(data=mutated(valid(kind, rng), rng), node_id=rng.choice(["a", "b", "stranger"]), type=kind)
        runner.listeners[kind](environment=None, msg=message)
        for member in master.fleet.members.values():
            if member.state is State.DRAINED:
                member.state = State.RUNNING
    ledger = master.fleet.ledger(100)
    assert all(isinstance(value, int) for value in ledger.values())
    merged = master.fleet.merged()
    assert all(histogram.n == histogram.cells.sum() + histogram.over for histogram in merged.values())
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    for path in (folder / "snapshots").glob("*.jsonl"):
        json.loads(path.read_text(), parse_constant=lambda constant: pytest.fail(constant))
    assert sum(kind == "message-refused" for kind, _ in master.events) <= 100, "a flood of refusals must not fill the disk"


def corrupted(data, rng):
    """Bytes with some changed, cut, doubled, or replaced by junk."""
    action = rng.randrange(6)
    if action == 0:
        return data[: rng.randrange(len(data) + 1)]
    if action == 1:
        return rng.randbytes(rng.randrange(400))
    if action == 2:
        return data + rng.randbytes(rng.randrange(200))
    if action == 3:
        return data.replace(
            rng.choice([b'"', b":", b"0", b"1", b"{", b"}"]), rng.choice([b"", b"[", b"NaN", b"-", b"1e999"]), rng.randrange(1, 4)
        )
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 20)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(3))
def test_hostile_run_folders(tmp_path, seed):
    """A damaged file of a run folder is a RunFolderError that names it, or a run whose missing parts are named: nothing else."""
    rng = random.Random(100 + seed)
    plan = Plan()
    original = tmp_path / "original"
    rows = rows_of(plan, 5.0)
    write_run(original, plan, rows)
    files = sorted(path.relative_to(original) for path in original.rglob("*") if path.is_file())
    assert len(files) >= 3
    for case in range(FILE_CASES // 3):
        folder = tmp_path / f"case{case}"
        shutil.copytree(original, folder)
        victim = folder / rng.choice(files)
        if rng.random() < 0.05:
            victim.unlink()
        else:
            victim.write_bytes(corrupted(victim.read_bytes(), rng))
        try:
            run = open_run(folder)
        except RunFolderError as error:
            named = victim.name in str(error) or "run.json" in str(error)
            if not named:
                pytest.fail(f"{victim.name} was damaged, the error names neither it nor the manifest: {error}")
        else:
            assert len(run.records["k"]) <= len(rows) + 10
        shutil.rmtree(folder)
