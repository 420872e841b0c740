"""The collector's files as they grow: torn, hostile and endless ones."""

import json

from truetail.tail import MOST_BYTES, Tail
from truetail.telemetry import MOST_TRACKS, RECENT_S, Telemetry, Track

EPOCH = 1_700_000_000 * 10**9


def write(path, *lines, mode="a"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


def sample(at_s, values, **more):
    return {"wall_ns": EPOCH + int(at_s * 1e9), "mono_ns": 1, "values": values, **more}


def test_tail_waits_for_whole_lines(tmp_path):
    """Half a line is not read until its rest has come; what is no object is passed over; a line beyond the bound is skipped."""
    path = tmp_path / "x.jsonl"
    tail = Tail(path)
    assert tail.lines() == []
    write(path, {"a": 1}, '{"a": ')
    assert tail.lines() == [{"a": 1}]
    write(path, "2}\n", "[1]\nnull\nnonsense\n", {"a": 3})
    assert tail.lines() == [{"a": 2}, {"a": 3}]
    write(path, "x" * (MOST_BYTES + 10), "\n", {"a": 4})
    found = [line for _ in range(3) for line in tail.lines()]
    assert found == [{"a": 4}]


def test_seconds_are_means_of_their_samples(tmp_path):
    """Ten samples a second become one point, their mean; a busy share becomes percent; both devices of one file are told apart."""
    telemetry = Telemetry(tmp_path)
    path = tmp_path / "gpu" / "simulated-target.jsonl"
    write(path, {"format": "truetail-collector/1"})
    for i in range(30):
        write(
            path,
            sample(1 + i / 10, {"devices.0.busy_share": (i % 10) / 10, "devices.1.busy_share": 1, "ready": 1}, simulated=True),
        )
    telemetry.look(None)
    assert telemetry.tracks == {}
    telemetry.look(EPOCH)
    zero, one = telemetry.as_json(1.0)
    assert (zero["title"], zero["unit"], zero["simulated"]) == ("busy", "%", True)
    assert zero["recent"] == ([2, 3, 4], [45.0, 45.0, 45.0])
    assert one["recent"][1] == [100.0] * 3
    assert telemetry.as_json(2.0)[0]["whole"] == ([2, 4], [45.0, 45.0])


def test_a_track_does_not_grow_with_the_run():
    """Twelve hours at 4 samples a second: the last two minutes by the second, all of it in 85 stretches of 512 s, every mean that of its samples."""
    track, seconds = Track("gpu", "power", "W", False), 12 * 3600
    track.add(-1.0, 1e9)  # before the epoch
    for second in range(seconds):
        for part in (0, 0.25, 0.5, 0.75):
            track.add(second + part, second + 8 * part)
    assert (len(track.recent), len(track.whole), track.width_s) == (RECENT_S, 85, 512)
    ends, means = track.newest(seconds - 60)
    assert ends == list(range(seconds - 59, seconds + 1))
    assert means == [float(f"{second + 3:.5g}") for second in range(seconds - 60, seconds)]
    for asked_s, got_s in ((1, 512), (512, 512), (2048, 2048)):
        ends, means = track.over_all(asked_s)
        assert ends == list(range(got_s, seconds + got_s, got_s))
        whole = [range(end - got_s, min(end, seconds)) for end in ends]
        assert means == [float(f"{sum(each) / len(each) + 3:.5g}") for each in whole]
    assert sum(n for _, n in track.whole.values()) == 4 * seconds


def test_nvml_server_and_host(tmp_path):
    """NVML's fields, a server's gauges (not its counters) and the host's busy share from its counters."""
    telemetry = Telemetry(tmp_path)
    gpu = {"utilization_gpu_percent": 80, "power_average_w": 300.5, "memory_used_bytes": 3 << 30}
    write(tmp_path / "gpu" / "host-a.jsonl", sample(1, gpu, gpu=1))
    server = {"nv_queue_length": 3, "nv_requests_running_total": 9, 'num_waiting{m="<b>"}': 2}
    write(tmp_path / "server" / "triton.jsonl", sample(1, server))
    for at, idle, user in ((1, 10.0, 0.0), (2, 10.5, 0.5)):
        write(tmp_path / "host" / "a.jsonl", sample(at, {"cpu_idle_s_total": idle, "cpu_user_s_total": user, "load_1min": 1.5}))
    telemetry.look(EPOCH)
    told = {(track["source"], track["title"]): track["recent"][1] for track in telemetry.as_json(1.0)}
    assert told[("gpu host-a #1", "utilisation")] == [80.0]
    assert told[("gpu host-a #1", "memory used")] == [3.0]
    assert told[("server triton", "nv_queue_length")] == [3.0]
    assert not any("total" in title for _, title in told)
    assert told[("host a", "CPUs busy")] == [50.0]


def test_throttling_and_collector_events_become_events(tmp_path):
    """Reasons that appear and vanish are events, being idle is not; the collector's own events are passed on."""
    telemetry = Telemetry(tmp_path)
    path = tmp_path / "gpu" / "h.jsonl"
    for at, reasons in ((1, ["gpu_idle"]), (2, ["hw_thermal_slowdown"]), (3, ["hw_thermal_slowdown"]), (4, [])):
        write(path, sample(at, {"power_w": 1.0, "event_reasons": reasons}, gpu=0))
    write(tmp_path / "gpu" / "collector_events.jsonl", {"wall_ns": EPOCH, "kind": "gpu-lost", "text": "fell off the bus"})
    telemetry.look(EPOCH)
    events = telemetry.new_events()
    assert {event["kind"] for event in events} == {"throttling", "throttling-ended", "gpu-lost"}
    assert len(events) == 3
    assert telemetry.new_events() == []


def test_hostile_lines(tmp_path):
    """Strange types, numbers and names are passed over; thousands of series do not grow without bound; links are not followed."""
    telemetry = Telemetry(tmp_path)
    bad = [
        {"wall_ns": "now", "values": {"power_w": 1}},
        {"wall_ns": True, "values": {"power_w": 1}},
        {"wall_ns": 1 << 80, "values": {"power_w": 1}},
        sample(1, "text"),
        sample(1, {"power_w": "NaN", "clock_mhz": True, "temperature_gpu_celsius": None, "batch_size": 1e305}, gpu=0),
        sample(1, {"event_reasons": [["nested"], 3]}, gpu=0),
    ]
    write(tmp_path / "gpu" / "h.jsonl", *bad, sample(2, {"power_w": 7.0}, gpu=0))
    write(tmp_path / "server" / "many.jsonl", sample(1, {f"queue_{i}": i for i in range(1000)}))
    secret = tmp_path / "secret.jsonl"
    write(secret, sample(1, {"queue": 5}))
    (tmp_path / "server" / "link.jsonl").symlink_to(secret)
    telemetry.look(EPOCH)
    assert [track.latest for key, track in telemetry.tracks.items() if key[1] == "power_w"] == [7.0]
    assert len(telemetry.tracks) <= MOST_TRACKS
    assert not any("link" in track.source for track in telemetry.tracks.values())
