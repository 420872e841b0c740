"""The whole collector as a process: files, faults, endings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest


def kinds(run: Path, read_lines: Any, folder: str = "gpu") -> list[dict[str, Any]]:
    """The events of a folder so far."""
    path = run / folder / "collector_events.jsonl"
    return [line for line in read_lines(path) if "kind" in line] if path.exists() else []


def test_no_gpu_is_one_line_and_all_else_goes_on(tmp_path: Path, collect: Any, read_lines: Any, read_samples: Any) -> None:
    """Without a driver there is one event with the reason, and the host is sampled all the same."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "empty")}
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    process = collect("--out", str(tmp_path), "--host-period", "200ms", "--host-name", "h", "--duration", "1500ms", env=env)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [event["kind"] for event in kinds(tmp_path, read_lines)] == ["no-gpu"]
    assert stderr.count("no-gpu") == 1
    assert "Traceback" not in stderr
    assert len(read_samples(tmp_path / "host/h.jsonl")) >= 3
    assert not (tmp_path / "gpu/h.jsonl").exists()
    process = collect("--out", str(tmp_path / "b"), "--gpu", "yes", env=env)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "no GPU was found" in stderr


def test_gpus_lost_hung_and_back(
    tmp_path: Path, fake_nvml: Any, collect: Any, read_lines: Any, read_samples: Any, wait_until: Any
) -> None:
    """One GPU falls off and comes back, then hangs: events say so, and the other GPU never misses more than a tick or two."""
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--no-host", "--host-name", "h", env=fake_nvml.environment())
    path = tmp_path / "gpu/h.jsonl"

    def count(gpu: int) -> int:
        return sum(line["gpu"] == gpu for line in read_samples(path)) if path.exists() else 0

    def seen(kind: str) -> bool:
        return any(event["kind"] == kind and event.get("gpu") == 1 for event in kinds(tmp_path, read_lines))

    wait_until(lambda: count(0) > 3 and count(1) > 3)
    fake_nvml.set({"1.err.all": 15})
    wait_until(lambda: seen("gpu-lost"))
    before = count(0)
    wait_until(lambda: count(0) > before + 3)
    fake_nvml.set({"1.power_mw": 123_000}, without=("1.err.all",))
    wait_until(lambda: seen("source-back"))
    fake_nvml.set({"1.sleep_ms.nvmlDeviceGetClockInfo": 2_000})
    wait_until(lambda: seen("call-hung"))
    before = count(0)
    wait_until(lambda: count(0) > before + 3)
    fake_nvml.set({"xid_seq": 1, "0.xid": 31}, without=("1.sleep_ms.nvmlDeviceGetClockInfo",))
    wait_until(lambda: seen("call-returned"))
    wait_until(lambda: any(e["kind"] == "xid" and e["xid"] == 31 and e["gpu"] == 0 for e in kinds(tmp_path, read_lines)))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    by_gpu = {gpu: [line for line in read_samples(path) if line["gpu"] == gpu] for gpu in (0, 1)}
    assert by_gpu[1][-1]["values"]["power_w"] == 123.0
    assert by_gpu[0][-1]["values"]["power_w"] == 350.5
    assert any(line.get("missed", 0) >= 5 for line in by_gpu[1]), "the hang's missed ticks are counted"
    assert len(by_gpu[0]) > len(by_gpu[1]) + 10
    ends = {line["end"]["gpu"]: line["end"] for line in read_lines(path) if "end" in line}
    assert ends[1]["samples"] == len(by_gpu[1])
    assert ends[1]["missed"] >= 5


def test_ends_though_a_call_hangs(tmp_path: Path, fake_nvml: Any, collect: Any, wait_until: Any) -> None:
    """SIGTERM ends the collector in seconds even while a driver call does not come back."""
    fake_nvml.set({"1.sleep_ms.nvmlDeviceGetClockInfo": 120_000})
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--no-host", env=fake_nvml.environment())
    wait_until(lambda: list(tmp_path.glob("gpu/*.jsonl")))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_kill_9_loses_at_most_the_last_second(tmp_path: Path, fake_nvml: Any, collect: Any, wait_until: Any) -> None:
    """Killed at an arbitrary instant, every line but at most the last is whole, and the last is of the last second."""
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--no-host", "--host-name", "h", "--period", "10ms",
                      env=fake_nvml.environment())  # fmt: skip
    path = tmp_path / "gpu/h.jsonl"
    wait_until(lambda: path.exists() and path.stat().st_size > 100_000)
    os.kill(process.pid, signal.SIGSTOP)  # time of death, exactly
    died_ns = time.monotonic_ns()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    *whole, last = path.read_bytes().split(b"\n")
    parsed = [json.loads(line) for line in whole]
    assert last == b"" or not last.endswith(b"}")
    newest = max(line["mono_ns"] for line in parsed if "values" in line)
    assert died_ns - newest < 10**9


def test_restart_continues_the_file(tmp_path: Path, fake_nvml: Any, collect: Any, read_lines: Any) -> None:
    """A second collector in the same folder ends a torn line and appends under a header of its own."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/h.jsonl").write_text('{"format":"truetail-collector/1"}\n{"wall_ns":1,"mo')
    arguments = ("--out", str(tmp_path), "--gpu", "yes", "--no-host", "--host-name", "h", "--duration", "500ms")
    process = collect(*arguments, env=fake_nvml.environment())
    process.communicate(timeout=20)
    text = (tmp_path / "gpu/h.jsonl").read_text().splitlines()
    assert text[1] == '{"wall_ns":1,"mo'
    assert json.loads(text[2])["source"] == "nvml"
    assert "anchor" in json.loads(text[3])


def test_exit_with_parent_on_stdin(tmp_path: Path, collect: Any) -> None:
    """With --exit-with-parent the collector ends when the pipe on its stdin closes; without it, it does not."""
    process = collect("--out", str(tmp_path / "a"), "--gpu", "no", "--exit-with-parent", stdin=subprocess.PIPE)
    other = collect("--out", str(tmp_path / "b"), "--gpu", "no", stdin=subprocess.PIPE)
    for it in (process, other):
        assert any("sampling" in line for line in iter(it.stderr.readline, ""))
        it.stdin.close()
        it.stdin = None
    process.wait(timeout=20)
    assert process.returncode == 0
    assert other.poll() is None
    other.send_signal(signal.SIGINT)
    assert other.wait(timeout=20) == 0


def test_exit_with_parent_that_is_killed(tmp_path: Path, wait_until: Any) -> None:
    """A parent killed by SIGKILL takes the collector with it, though stdin is /dev/null."""
    script = (
        "import subprocess,sys,time\n"
        f"p=subprocess.Popen([sys.executable,'-m','collector','--out',{str(tmp_path)!r},'--gpu','no','--exit-with-parent'],"
        "stdin=subprocess.DEVNULL,stderr=subprocess.DEVNULL)\nprint(p.pid,flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    wait_until(lambda: list(tmp_path.glob("host/*.jsonl")))
    parent.kill()
    parent.communicate()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(gone)


def test_parent_that_was_gone_before_we_looked(tmp_path: Path, collect: Any) -> None:
    """A parent told by its process id that is not ours any more: it died while the interpreter started."""
    process = collect("--out", str(tmp_path), "--gpu", "no", "--exit-with-parent", str(os.getppid()))
    assert process.wait(timeout=20) == 0
    assert list(tmp_path.glob("host/*.jsonl"))


def test_own_metrics_page(tmp_path: Path, fake_nvml: Any, collect: Any, wait_until: Any) -> None:
    """The /metrics page on 127.0.0.1 shows the latest values and own counters, and the official parser reads it."""
    from prometheus_client.parser import text_string_to_metric_families

    process = collect("--out", str(tmp_path), "--gpu", "yes", "--host-name", "h", env=fake_nvml.environment())
    url = next(line for line in process.stderr if "metrics on " in line).split("metrics on ")[1].strip()
    assert url.startswith("http://127.0.0.1:")

    def page() -> dict[Any, float]:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        return {
            (s.name, s.labels.get("source"), s.labels.get("gpu")): s.value
            for f in text_string_to_metric_families(text)
            for s in f.samples
        }

    values = wait_until(lambda: (p := page()) and ("truetail_gpu_power_w", "nvml", "1") in p and p)
    assert values["truetail_gpu_power_w", "nvml", "1"] == 350.5
    assert values["truetail_gpu_energy_mj_total", "nvml", "0"] == 5_000_000
    assert values["truetail_collector_samples_total", "nvml", "0"] >= 1
    assert values["truetail_collector_hung", "nvml", "0"] == 0


def test_epoch_is_noted(tmp_path: Path, collect: Any, read_lines: Any, wait_until: Any) -> None:
    """Once run.json has the epoch it is noted in this host's own clocks, within the stated uncertainty."""
    process = collect("--out", str(tmp_path), "--gpu", "no", "--host-name", "h")
    path = tmp_path / "host/h.jsonl"
    wait_until(lambda: path.exists())
    (tmp_path / "run.json").write_text('{"epoch_wall_ns": nul')
    time.sleep(0.3)
    epoch_wall_ns = time.time_ns() + 5 * 10**9
    epoch_mono_ns = time.monotonic_ns() + 5 * 10**9
    (tmp_path / "run.json").write_text(json.dumps({"epoch_wall_ns": epoch_wall_ns}))
    noted = wait_until(lambda: [line["epoch"] for line in read_lines(path) if "epoch" in line])
    process.send_signal(signal.SIGTERM)
    assert len(noted) == 1
    assert noted[0]["epoch_wall_ns"] == epoch_wall_ns
    assert abs(noted[0]["epoch_mono_ns"] - epoch_mono_ns) < noted[0]["uncertainty_ns"] + 20_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prometheus", "x=ftp://h/"], "http:// or https://"),
        (["--prometheus", "x=http://u:secret@h/"], "TRUETAIL_PROMETHEUS_TOKEN_X"),
        (["--prometheus", "x=http://h/,tritn"], "expected one of"),
        (["--prometheus", "../x=http://h/"], "expected NAME=URL"),
        (["--period", "1ms"], "from 10ms to 1h"),
        (["--period", "soon"], "expected a duration"),
        (["--prometheus", "x=http://h/", "--prometheus", "x=http://i/"], "given twice"),
        (["--metrics-port", "70000"], "-1 to 65535"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument ends with code 2 and a line that says what was found and what is allowed; the secret is not repeated."""
    from collector.options import parse

    with pytest.raises(SystemExit) as ended:
        parse(["--out", str(tmp_path), *arguments])
    stderr = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in stderr
    assert "secret" not in stderr


def test_unwritable_folder(tmp_path: Path, collect: Any) -> None:
    """A run folder that cannot be made is one clear line and code 2."""
    (tmp_path / "file").write_text("")
    process = collect("--out", str(tmp_path / "file/run"), "--gpu", "no")
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "cannot start" in stderr
    assert "Traceback" not in stderr
