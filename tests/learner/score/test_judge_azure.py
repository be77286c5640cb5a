"""The package azure-ai-evaluation as a judge: it needs pandas below 3, so a place of its own."""

import os
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.judge_server import judge_server
from support.running import INSTALL_S, finish, installing

from otel_lightning.learner.score.judges.azure import azure_messages, read_result, split_turns
from otel_lightning.learner.score.judges.conversation import Turn

if TYPE_CHECKING:
    from conftest import Traces

ROOT = Path(__file__).parents[3]
SAID = {"type": "text", "content": "Refunded."}
CALL = {"type": "tool_call", "id": "c1", "name": "lookup", "arguments": {"order": 7}}
RESULT = {"type": "tool_call_response", "id": "c1", "response": {"state": "paid"}}


def test_the_response_is_what_follows_the_users_last_message() -> None:
    roles = ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    query, response = split_turns([Turn(role, ()) for role in roles])
    assert [turn.role for turn in query] == roles[:4]
    assert [turn.role for turn in response] == roles[4:]


def test_turns_are_written_as_the_evaluators_read_them() -> None:
    # The form of the examples in the docstring of IntentResolutionEvaluator.
    (asked,) = azure_messages(Turn("assistant", (CALL,)))
    assert asked == {
        "role": "assistant",
        "content": [
            {
                "type": "tool_call",
                "tool_call_id": "c1",
                "name": "lookup",
                "arguments": {"order": 7},
            }
        ],
    }
    (answered,) = azure_messages(Turn("tool", (RESULT,)))
    assert answered == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "tool_result", "tool_result": '{"state": "paid"}'}],
    }
    (said,) = azure_messages(Turn("assistant", (SAID,)))
    assert said["content"] == [{"type": "text", "text": "Refunded."}]


def test_the_models_own_words_are_read_where_the_evaluator_made_a_zero_of_them() -> None:
    # What TaskAdherenceEvaluator 1.18.10 answers for a model that said '{"reason": "Well."}'.
    properties = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "sample_output": '[{"role": "assistant", "content": "{\\"reason\\": \\"Well.\\"}"}]',
    }
    result = {"task_adherence": 0.0, "task_adherence_properties": properties}
    assert read_result("task_adherence", result) == ('{"reason": "Well."}', 100, 10, False)


@pytest.mark.slow
def test_azure_ai_evaluation_judges_by_a_server_of_ones_own(
    traces: "Traces", tmp_path: Path
) -> None:
    python = install_extra(tmp_path / "venv")
    for rollout, question in {
        "good": "quality=1",
        "nonsense": "quality=1 judge=nonsense",
        "scoreless": "quality=1 judge=scoreless",
        "refused": "quality=1 judge=refused",
        "bad": "quality=0",
    }.items():
        message = f'[{{"role": "user", "parts": [{{"type": "text", "content": "{question}"}}]}}]'
        traces.call(rollout, input_messages=message)
    traces.store()
    with judge_server() as server:
        process = finish(
            *(python, "-m", "otel_lightning.learner", "judge", "--evaluator", "azure"),
            *("--store", traces.path, "--endpoint", server.url, "--model", "any"),
            env=os.environ | {"OPENAI_API_KEY": "sesame"},
            check=True,
        )
        assert any("Intent-Resolution-Judge" in str(r["messages"]) for r in server.requests)
        assert set(server.keys) == {"Bearer sesame"}
    rows = traces.ask("SELECT name, rollout_id, value, label FROM rewards ORDER BY name, value")
    values = {(row["name"], row["rollout_id"]): (row["value"], row["label"]) for row in rows}
    assert len(values) == 15
    assert values["intent_resolution", "good"] == (1.0, "fail")
    assert values["intent_resolution", "bad"] == (None, "error")  # 0 is not on its scale
    for name in ("task_adherence", "task_completion"):
        assert values[name, "good"] == (1.0, "pass")
        assert values[name, "bad"] == (0.0, "fail")
    for name in ("intent_resolution", "task_adherence", "task_completion"):
        errors = {values[name, rollout] for rollout in ("nonsense", "scoreless", "refused")}
        assert errors == {(None, "error")}
    assert "15 answers asked for" in process.stdout


def install_extra(venv: Path) -> Path:
    """Install what the extra adds over the environment of the tests, which it sees behind it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    added = [r for r in extras["optional-dependencies"]["azure"] if "otel-lightning" not in r]
    finish(sys.executable, "-m", "venv", "--without-pip", venv, check=True)
    python = venv / "bin" / "python"
    finish(*installing(python), *added, check=True, seconds=INSTALL_S)
    (site,) = venv.glob("lib/python*/site-packages")
    behind = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (site / "behind.pth").write_text(behind + "\n")
    return python
