"""`lightning-learn prompts` against a real server: new variants, their shares and their records."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.prompt_server import (
    UNKNOWN,
    Reply,
    learns_rules,
    proposal,
    records_of,
    true_success,
)
from support.prompted_flag import (
    FIRST,
    TEXT,
    Serve,
    ask,
    flag,
    log,
    new_variants,
    numbered,
    question,
    with_store,
)

from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.serving import flag_document

if TYPE_CHECKING:
    from conftest import Traces


@pytest.mark.slow
def test_thirty_logged_rollouts_teach_what_search_needs_hundreds_for(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 45)  # of which about thirty are of the train split
    result = ask(traces, flags, serve(learns_rules), "--candidates", "1", "--records", "30")
    assert result.exit_code == 0, result.output
    ((name, text),) = new_variants(flags).items()
    assert true_success(FIRST) == UNKNOWN
    assert true_success(text) >= 0.8, text
    parent = flag(flags)["metadata"][f"lightning.candidate.{name}"].split(" ")[0]
    assert name.startswith(f"{parent}-")


def test_with_shuffled_rewards_nothing_is_gained(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 300)
    server = serve(learns_rules)
    result = ask(
        traces, flags, server, "--candidates", "6", "--max-arms", "9", "--shuffle-rewards", "1"
    )
    assert result.exit_code in (0, 3), result.output
    gains = [true_success(text) - UNKNOWN for text in new_variants(flags).values()]
    assert len(gains) > 1
    assert sum(gains) / len(gains) < 0.1, gains


def test_new_variants_take_a_small_share_from_all_live_ones_in_proportion(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    result = ask(traces, flags, serve(numbered), "--candidates", "2")
    assert result.exit_code == 0, result.output
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert sum(weights.values()) == 10_000
    assert (weights.pop("careful"), weights.pop("brief")) == (5940, 3060)
    assert sorted(weights) == sorted(new_variants(flags))
    assert set(weights.values()) == {500}
    propensities = {
        name.removeprefix("lightning.propensity."): value
        for name, value in flag(flags)["metadata"].items()
        if name.startswith("lightning.propensity.")
    }
    assert propensities == {"careful": 0.594, "brief": 0.306} | dict.fromkeys(weights, 0.05)
    assert "careful 66.0% -> 59.4%; brief 34.0% -> 30.6%" in result.stdout


def test_file_keeps_its_formatting_and_rollback_restores_the_shares(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    assert ask(traces, flags, serve(numbered), "--candidates", "1").exit_code == 0
    lines = flags.read_text().splitlines()
    assert lines[1].startswith('    "support-prompt": {"state": "ENABLED",   "defaultVariant"')
    assert lines[-4:] == TEXT.splitlines()[-4:]
    where = ["--store", str(traces.path), "--key", "support-prompt"]
    listed = CliRunner().invoke(cli, ["policies", *where])
    assert listed.exit_code == 0, listed.output
    back = CliRunner().invoke(cli, ["rollback", *where], catch_exceptions=False)
    assert back.exit_code == 0, back.output
    assert flag_document.live_shares({"flags": {"k": flag(flags)}}, "k") == {
        "careful": 0.66,
        "brief": 0.34,
    }


def test_stock_flagd_provider_serves_the_new_variants(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    from openfeature import api
    from openfeature.contrib.provider.flagd import FlagdProvider
    from openfeature.contrib.provider.flagd.config import ResolverType
    from openfeature.evaluation_context import EvaluationContext

    log(traces)
    assert ask(traces, flags, serve(numbered), "--share", "0.5").exit_code == 0
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    api.set_provider_and_wait(provider)
    try:
        client = api.get_client()
        served = {
            client.get_string_details("support-prompt", "", EvaluationContext(f"user-{n}")).variant
            for n in range(300)
        }
    finally:
        api.shutdown()
    assert served == set(flag(flags)["variants"])


def test_only_train_tasks_are_shown_most_of_them_failures(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 200)
    server = serve(numbered)
    assert ask(traces, flags, server, "--records", "9").exit_code == 0
    made = CliRunner().invoke(
        cli, ["transitions", "--store", str(traces.path)], catch_exceptions=False
    )
    assert made.exit_code == 0, made.output
    held_out = {
        row["rollout_id"]
        for row in traces.ask("SELECT rollout_id FROM transitions WHERE split = 'heldout'")
    }
    used = {r for row in traces.ask("SELECT records FROM prompts") for r in row["records"]}
    assert len(held_out) > 30
    assert used
    assert not used & held_out
    for request in server.requests:
        outcomes = [record["outcome"] for record in records_of(request)]
        assert sorted(outcomes) == ["failed"] * 6 + ["succeeded"] * 3
    assert len({request["messages"][-1]["content"] for request in server.requests}) == 3


def test_each_proposal_is_recorded_with_its_records_and_reason(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    replies = [proposal("A new prompt."), Reply("What a nice agent!"), proposal("Be  brief.")]
    assert ask(traces, flags, serve(lambda _, n: replies[n]), "--concurrency", "1").exit_code == 0
    rows = traces.ask("SELECT * FROM prompts ORDER BY call")
    assert [row["variant"] is not None for row in rows] == [True, False, False]
    assert rows[0]["text"] == "A new prompt."
    assert rows[0]["reason"] == "It should help."
    assert "no JSON object with a prompt: 'What a nice agent!'" in rows[1]["refused"]
    assert rows[2]["refused"] == "it equals a variant, or a proposal of before"
    assert [row["parent"] for row in rows[:2]] == [rows[0]["parent"]] * 2
    assert {len(row["records"]) for row in rows} == {24}
    (run,) = traces.ask("SELECT run_id, command, outcome FROM runs")
    assert run == {"run_id": rows[0]["run_id"], "command": "prompts", "outcome": "written"}


def test_file_that_another_program_changes_meanwhile_keeps_that_change(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    edited = TEXT.replace('"careful", 66', '"careful", 50').replace('"brief", 34', '"brief", 50')

    def edits(request: dict[str, Any], number: int) -> Reply:
        flags.write_text(edited.replace('"on": true', '"on": false'))
        return numbered(request, number)

    result = ask(traces, flags, serve(edits), "--candidates", "1")
    assert result.exit_code == 0
    assert "changed by another program 1 time meanwhile; its changes are kept." in result.stdout
    assert json.loads(flags.read_text())["flags"]["other"]["variants"] == {"on": False}
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert (weights["careful"], weights["brief"]) == (4500, 4500)


def test_parent_that_is_edited_meanwhile_is_not_overwritten(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    edited = TEXT.replace("requests of customers", "questions of customers").replace(
        "Be b", "Stay b"
    )

    def edits(request: dict[str, Any], number: int) -> Reply:
        flags.write_text(edited)
        return numbered(request, number)

    result = ask(traces, flags, serve(edits), "--candidates", "1")
    assert result.exit_code == 1
    assert "was changed while the model was asked" in result.stderr
    assert flags.read_text() == edited
    (row,) = traces.ask("SELECT variant, refused FROM prompts")
    assert row["variant"] is None
    assert "not written" in row["refused"]
    assert traces.ask("SELECT * FROM promotions") == []


def test_dry_run_prints_the_prompts_and_writes_nothing(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    result = ask(traces, flags, server, "--dry-run", "--candidates", "2")
    assert result.exit_code == 0, result.output
    assert "You answer well, way 0." in result.stdout
    assert flags.read_text() == TEXT
    assert traces.ask("SELECT * FROM prompts") == []
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert len(server.requests) == 2  # the answers of the dry run are used


@pytest.mark.slow
def test_full_flag_takes_no_more_until_a_loser_is_known(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    assert ask(traces, flags, server, "--max-arms", "3").exit_code == 0
    (name,) = new_variants(flags)
    full = ask(traces, flags, server, "--max-arms", "3")
    assert full.exit_code == 3
    assert "3 variants are served already" in full.stderr
    for i in range(400):  # the new variant loses to its parent
        rollout, arm = f"later-{i}", (name, "careful")[i % 2]
        traces.call(rollout, input_messages=question("refund", i))
        traces.arm(rollout, arm, 0.05)
        traces.task(rollout, f"later-{i}")
        traces.reward(rollout, float(arm == "careful"))
    traces.store()
    result = ask(traces, flags, server, "--max-arms", "3")
    assert result.exit_code == 0, result.output
    assert f"{name}: worse than its parent, gets no traffic any more." in result.stdout
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert weights[name] == 0
    assert name in flag(flags)["variants"]
    assert len([weight for weight in weights.values() if weight]) == 3


def test_components_of_an_object_are_improved_in_turn(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    document = json.loads(TEXT)
    document["flags"]["support-prompt"]["variants"] = {
        "careful": {"system": "Answer.", "rewrite": "Write it again.", "turns": 3},
        "brief": {"system": "Answer briefly.", "rewrite": "Shorten it.", "turns": 2},
    }
    flags.write_text(json.dumps(document))
    log(traces)
    assert ask(traces, flags, serve(numbered), "--candidates", "2").exit_code == 0
    values = [value for value in new_variants(flags).values() if isinstance(value, dict)]
    assert len(values) == 2
    rows = traces.ask("SELECT component, text FROM prompts ORDER BY call")
    assert [row["component"] for row in rows] == ["system", "rewrite"]
    for row, value in zip(
        rows, sorted(values, key=lambda v: "way" not in v["system"]), strict=True
    ):
        assert value[row["component"]] == row["text"]
        assert value["turns"] in (2, 3)


def test_killed_run_is_finished_by_the_next_without_asking_again(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    written, rows = flags.read_text(), traces.ask("SELECT * FROM prompts ORDER BY call")
    # As if the process had been killed before it wrote the file.
    flags.write_text(TEXT)
    with_store(traces, "DELETE FROM runs")
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert flags.read_text() == written
    assert len(server.requests) == 2
    after = traces.ask("SELECT * FROM prompts ORDER BY call")
    assert [row | {"created": None} for row in after] == [row | {"created": None} for row in rows]
    assert len(traces.ask("SELECT * FROM promotions")) == 1
    # As if it had been killed after.
    with_store(traces, "DELETE FROM runs")
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert flags.read_text() == written
    assert len(traces.ask("SELECT * FROM promotions")) == 1
    assert len(traces.ask("SELECT * FROM runs")) == 1
