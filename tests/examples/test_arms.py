"""The example of prompts that learn: examples/arms, run as its readers run it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.running import LIMIT_S, background, cli, running, written_by

from otel_lightning.collector.store import open_store

ARMS = Path(__file__).parents[2] / "examples" / "arms"
SHARES = {"plain": 0.2, "steps": 0.5, "polite": 0.3}
QUESTIONS = 60


@pytest.mark.slow
def test_regret_falls_and_the_poisoned_round_is_refused(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, ARMS / "demo_arms.py", "--quick", "--folder", tmp_path / "demo"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr
    rows = re.findall(r"^(\d)( poisoned)? +([\d.]+) .* (\w+)$", process.stdout, re.MULTILINE)
    clean = [float(regret) for _, poisoned, regret, _ in rows if not poisoned]
    assert len(clean) == 3
    assert clean == sorted(clean, reverse=True)
    assert clean[-1] < clean[0] / 2
    assert [told for _, poisoned, _, told in rows if poisoned] == ["refused"]
    flag = json.loads((tmp_path / "demo" / "flags.json").read_text())["flags"]["shop-prompt"]
    assert "if" in flag["targeting"]  # rules by the kind of question


@pytest.mark.slow
def test_propensity_in_the_store_is_the_one_that_the_flag_file_served(tmp_path: Path) -> None:
    document = json.loads((ARMS / "flags.json").read_text())
    flag = document["flags"]["shop-prompt"]
    flag["targeting"] = {"fractional": [[arm, int(100 * p)] for arm, p in SHARES.items()]}
    flag["metadata"] = {"lightning.policy.version": "v7"} | {
        f"lightning.propensity.{arm}": p for arm, p in SHARES.items()
    }
    (tmp_path / "flags.json").write_text(json.dumps(document))
    asked = [{"id": f"q{i}", "text": f"What does item {i} cost?"} for i in range(QUESTIONS)]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    serve = (sys.executable, ARMS / "shop_model.py", "--port-file", tmp_path / "port")
    with running(tmp_path / "traces.duckdb") as ingester, background(*serve) as model:
        answer_all(tmp_path, ingester.http, written_by(model, tmp_path / "port"))
        assert cli("derive", "--store", str(ingester.store)).returncode == 0
        rows = served(ingester.store)
    assert len(rows) == QUESTIONS
    assert {row["arm"] for row in rows} == set(SHARES)
    for row in rows:
        assert row["propensity"] == pytest.approx(SHARES[row["arm"]])
        assert row["policy_version"] == "v7"
        # The arm in the trace is the prompt that the model was given.
        assert flag["variants"][row["arm"]] in row["messages"]


def answer_all(folder: Path, collector: str, port: str) -> None:
    """Run the unchanged agent under OpenTelemetry."""
    names = {"questions": "asked.jsonl", "answers": "answers.jsonl", "flags": "flags.json"}
    options = [word for name, file in names.items() for word in (f"--{name}", str(folder / file))]
    environment = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
    }
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    subprocess.run(
        [instrument, sys.executable, ARMS / "shop_agent.py", *options],
        env=os.environ | environment,
        timeout=LIMIT_S,
        check=True,
    )


def served(store: Path) -> list[dict[str, Any]]:
    """Read what the store knows of each choice, and the messages of the call that follows."""
    with open_store(store) as opened:
        rows: list[dict[str, Any]] = opened.query("""
            SELECT DISTINCT rollout_id, a.arm, a.propensity, a.policy_version,
                c.input_messages::VARCHAR AS messages
            FROM arms a JOIN llm_calls c USING (rollout_id)""").to_pylist()
    return rows
