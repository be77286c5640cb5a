"""One model for each agent of a store."""

import json
import shutil
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import TASKS, fine_tune, log, run
from support.fine_tuning import FAST

if TYPE_CHECKING:
    from conftest import Traces


@pytest.mark.slow
def test_each_agent_gets_its_own_adapter_in_one_command(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2, agent_name=["planner", "writer"])
    run("transitions", "--store", traces.store(), "--credit", "group")
    output = tmp_path / "adapters"
    options = [*FAST, "--steps", "2", "--lora", "4", "--each-agent"]
    result = fine_tune(traces, behavior_model, output, *options)
    assert result.exit_code in {0, 3}, result.output
    assert (output / "planner" / "adapter_model.safetensors").exists()
    assert (output / "writer" / "adapter_model.safetensors").exists()
    told = traces.ask("SELECT config ->> 'agent' AS agent FROM runs WHERE command = 'weights'")
    assert sorted(row["agent"] for row in told) == ["planner", "writer"]
    there = fine_tune(traces, behavior_model, output, *options)
    assert f"'{output / 'planner'}' exists." in there.stderr
    # As if it had been killed before the second one.
    shutil.rmtree(output / "writer")
    first = (output / "planner" / "adapter_model.safetensors").stat().st_mtime_ns
    again = fine_tune(traces, behavior_model, output, *options, "--resume")
    assert again.exit_code in {0, 3}, again.output
    assert (output / "writer" / "adapter_model.safetensors").exists()
    assert (output / "planner" / "adapter_model.safetensors").stat().st_mtime_ns == first
    unknown = fine_tune(traces, behavior_model, tmp_path / "no", "--agent", "nobody")
    assert unknown.exit_code == 1
    assert "No transition is of agent 'nobody'. Known: 'planner', 'writer'" in unknown.stderr


def test_agents_that_finished_are_reported_if_a_later_one_fails(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2, tasks=20, agent_name=["planner", "writer"])
    run("transitions", "--store", traces.store())
    traces.ask(
        "UPDATE transition_rows SET advantage = 1 "
        "WHERE span_id IN (SELECT span_id FROM llm_calls WHERE agent_name = 'writer')"
    )
    traces.ask("UPDATE llm_calls SET agent_name = NULL WHERE rollout_id = '000-0'")
    options = [*FAST, "--steps", "1", "--each-agent"]
    result = fine_tune(traces, behavior_model, tmp_path / "learned", *options)
    assert result.exit_code == 1
    assert "1 transition names no agent, so no model learns from them." in result.stderr
    assert "have the advantage 1: nothing tells good from bad" in result.stderr
    assert (tmp_path / "learned" / "planner").is_dir()
    (header, rows, *_) = result.stdout.splitlines()
    assert header == "Agent planner:"
    assert rows.startswith("Training rows: ")
    assert "Held out: " in result.stdout


def test_agent_is_judged_by_the_reward_of_the_rollout_that_another_agent_ended(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, agent_name=["planner"])
    for task, attempt in product(range(TASKS), range(4)):
        traces.call(
            f"{task:03}-{attempt}",
            1,
            agent_name="reporter",
            prompt_token_ids=tokenizer.convert_tokens_to_ids(["<user>", "<end>", "<assistant>"]),
            completion_token_ids=tokenizer.convert_tokens_to_ids(["<end>"]),
            completion_logprobs=[0.0],
        )
    run("transitions", "--store", traces.store(), "--credit", "group")
    result = fine_tune(traces, behavior_model, tmp_path / "learned", *FAST, "--agent", "planner")
    assert result.exit_code == 0, result.output
    gate = json.loads((tmp_path / "learned" / "gate.json").read_text())
    (row,) = traces.ask(
        "SELECT avg(value) AS value FROM rewards WHERE rollout_id IN "
        "(SELECT rollout_id FROM transitions WHERE split = 'heldout')"
    )
    assert gate["behavior_value"] == pytest.approx(row["value"])


def test_agent_whose_name_leads_out_of_the_output_gets_no_folder(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=1, tasks=2, agent_name=["../planner"])
    run("transitions", "--store", traces.store())
    refused = fine_tune(traces, model, tmp_path / "adapters", "--each-agent")
    assert refused.exit_code == 1
    assert "No folder can have the name of agent '../planner'." in refused.stderr
    assert not (tmp_path / "adapters").exists()
