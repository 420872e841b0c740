"""A real llama.cpp server, streaming: our tokens are its own counters', our instants fit the times that it tells of each request."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import metric, refused_run, truetail_run

from collector.fetch import get
from collector.presets import PRESETS
from collector.prometheus import scrape

pytestmark = pytest.mark.real

TOKENS_OUT = "llamacpp:tokens_predicted_total"
TOKENS_IN = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")
SECONDS = ("llamacpp:prompt_seconds_total", "llamacpp:tokens_predicted_seconds_total")


def scenario(url, api, **protocol):
    return {
        "name": "llama", "target": {"url": url, "ready": {"path": "/health"}}, "users": "openai", "duration": "15s", "seed": 5,
        "pool": 50, "requests": [{
            "name": "complete",
            "protocol": {"api": api, "model": "tiny", "options": {"ignore_eos": True, "temperature": 1.0}, **protocol},
            "payload": {"tokens": {"uniform": [10, 40]}, "max_tokens": {"uniform": [8, 24]}},
        }],
        "arrivals": {"rate": "4/s", "spacing": "poisson"}, "slos": ["p99(ttft) < 5s"],
    }  # fmt: skip


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_and_times_agree_with_the_servers(llama, tmp_path, capsys, api):
    """Every arrival is answered with as many tokens as asked for; the sums over all records are the server's own totals, to the token.

    Time: the server's own (prompt and tokens, told with the last event) lies within ours, request by request; and our first token comes
    after its prompt on the whole, while the rest of the stream takes as long as its generation.
    """
    names = (TOKENS_OUT, *TOKENS_IN, *SECONDS)
    before = [metric(f"{llama}/metrics", name) for name in names]
    _, manifest, rows = truetail_run(tmp_path, scenario(llama, api))
    predicted, prompts, cached, prompt_s, predicted_s = (
        metric(f"{llama}/metrics", name) - then for name, then in zip(names, before, strict=True)
    )
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["ok"] == len(rows)
    assert sum(row["tokens_out"] for row in rows) == predicted
    assert sum(row["tokens_in"] for row in rows) == prompts + cached
    assert all(8 <= row["tokens_out"] <= 24 and row["tokens_in"] > 0 for row in rows)
    assert all(row["sent_ns"] < row["first_byte_ns"] <= row["first_token_ns"] <= row["done_ns"] for row in rows)
    assert manifest["target"]["models"]["complete"]["id"] == "tiny"

    service_s = np.array([row["done_ns"] - row["sent_ns"] for row in rows]) / 1e9
    told_s = np.array([row["inference_us"] for row in rows]) / 1e6
    assert (told_s <= service_s).all()
    # Its counters leave out what a prompt's last round takes beyond the prompt (tens of microseconds a request).
    assert told_s.sum() == pytest.approx(prompt_s + predicted_s, rel=0.1)
    first_s = np.array([row["first_token_ns"] - row["sent_ns"] for row in rows]) / 1e9
    rest_s = np.array([row["done_ns"] - row["first_token_ns"] for row in rows]) / 1e9
    with capsys.disabled():
        print(
            f"\n{api}: n {len(rows)}, {predicted:.0f} tokens out, {prompts:.0f} + {cached:.0f} in; mean in ms, ours and the server's: "
            f"first token {first_s.mean() * 1e3:.2f}, prompt {prompt_s / len(rows) * 1e3:.2f}; "
            f"the rest {rest_s.mean() * 1e3:.2f}, generation {predicted_s / len(rows) * 1e3:.2f}; "
            f"service {service_s.mean() * 1e3:.2f}, inference {told_s.mean() * 1e3:.2f}"
        )
    assert first_s.sum() >= prompt_s
    assert rest_s.mean() == pytest.approx(predicted_s / len(rows), abs=0.003)


def test_the_presets_families_are_there(llama):
    """The sidecar's preset finds the counters that this test lives on, and no line is refused."""
    got = scrape(get(f"{llama}/metrics").decode(), PRESETS["llamacpp"])
    assert {TOKENS_OUT, *TOKENS_IN, *SECONDS, "llamacpp:requests_processing", "llamacpp:requests_deferred"} <= got.types.keys()
    assert got.bad_lines == 0


def test_a_model_that_is_not_loaded_is_refused(llama, tmp_path):
    """llama.cpp would answer for any name with the model that it has; the run is refused and names that one."""
    file = scenario(llama, "chat", model="gpt-4")
    code, said = refused_run(tmp_path, file)
    assert code == 2
    assert "model gpt-4 is not loaded" in said
    assert "lists tiny" in said
