"""The example of docs/your-own-locustfile.md, run as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-own-locustfile.md"


@pytest.mark.swarm
def test_ordinary_user_class_runs_open_loop(tmp_path):
    """An unchanged FastHttpUser with the mixin: every planned arrival is one task, weights hold, on_start belongs to no arrival."""
    page = PAGE.read_text(encoding="utf-8")
    for language, name in (("python", "shop_users.py"), ("yaml", "shop.yaml")):
        (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        (tmp_path / name).write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "truetail", "run", str(tmp_path / "shop.yaml"), "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (folder,) = (tmp_path / "runs").iterdir()
    ledger = json.loads((folder / "run.json").read_text())["ledger"]
    assert ledger["scheduled"] == ledger["sent"] + ledger["dropped"], done.stdout + done.stderr
    assert ledger["ok"] == ledger["sent"] > 100
    rows = [row for part in (folder / "records").glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    names = Counter(row["name"] for row in rows if row["k"] >= 0)
    assert set(names) == {"look", "buy"}
    assert names["look"] > names["buy"] > 0
    assert {row["name"] for row in rows if row["k"] < 0} == {"login"}


def test_protocol_page_examples_are_valid(service):
    """The scenario of docs/protocols.md passes the schema, and the users it names accept its settings."""
    from locustfiles.openai_users import OpenAiUser
    from truetail.scenario import loads

    (block,) = re.findall(r"```yaml\n(.*?)```", (PAGE.parent / "protocols.md").read_text(encoding="utf-8"), re.DOTALL)
    resolved = loads(block).resolved()
    made = OpenAiUser.make_service(resolved, service({}).url)
    assert {entry.name: entry.protocol["model"] for entry in made.entries.values()} == {"short": "tiny", "talk": "tiny"}
    assert json.loads(made.entries["short"].request(None).wire.partition(b"\r\n\r\n")[2])["temperature"] == 0


def test_protocol_page_lists_every_protocol():
    """Its table has every locustfile and every setting that its users know."""
    page = (PAGE.parent / "protocols.md").read_text(encoding="utf-8")
    for file in (PAGE.parents[1] / "locustfiles").glob("*_users.py"):
        assert f"| `{file.stem.removesuffix('_users')}` |" in page
        for keys in re.findall(r"protocol_keys = \((.*?)\)", file.read_text(encoding="utf-8")):
            for key in re.findall(r'"(\w+)"', keys):
                assert f"`{key}`" in page
