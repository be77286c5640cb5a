"""Promote a fine-tuned model and roll back: one pointer, moved atomically and recorded."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support.running import finish

from otel_lightning.collector.store import open_store
from otel_lightning.learner.cli import cli
from otel_lightning.learner.model_folder import fingerprint
from otel_lightning.learner.named_sql import arrow
from otel_lightning.learner.runs import Run
from otel_lightning.learner.weights import pointer

if TYPE_CHECKING:
    from conftest import Traces

# Counts what changes the store or a link, and kills the process before one of them.
KILLED = """
import os, pathlib, signal, sys
from pathlib import Path
from otel_lightning.collector.store import Store, open_store
from otel_lightning.learner.weights import promotion

left = int(sys.argv[1])

def before(write):
    def counted(*arguments, **named):
        global left
        is_query = write.__name__ == "execute" and "INSERT INTO" not in str(arguments[1])
        left -= not is_query
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **named)
    return counted

with open_store(sys.argv[2]) as store:
    Store.execute = before(Store.execute)
    pathlib.Path.symlink_to = before(pathlib.Path.symlink_to)
    pathlib.Path.replace = before(pathlib.Path.replace)
    promotion.promote(store, Path(sys.argv[3]))
"""
WRITES = 3
"""The record, the new link, and the rename that puts it in the place of the old one."""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with three models; the gate passed `second` and refused `third`."""
    folder = tmp_path / "models"
    for name, gate in {
        "first": None,
        "second": {"refusals": [], "against": "first"},
        "third": {"refusals": ["the gain may be chance"], "against": "second"},
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
        if gate:
            gate["against"] = str(folder / str(gate["against"]))
            (folder / name / "gate.json").write_text(json.dumps(gate))
    return folder


def run(command: str, store: str, *options: Any) -> Result:
    words = [command, "--store", store, *map(str, options)]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def changes(store: str) -> list[tuple[str, str]]:
    with open_store(store, create=False) as opened:
        rows = pointer.changes_of(opened, None)
    return [(row["action"], Path(row["after"]).name) for row in rows]


def live(models: Path) -> str:
    return (models / "live").resolve().name


def compared(store: str, models: Path, *names: str, refusals: tuple[str, ...] = ()) -> None:
    """Record a comparison by running, as `lightning-learn evaluate` does."""
    folders = {f"models/{name}": str(models / name) for name in names}
    prints = {f"models/{name}": fingerprint(models / name) for name in names}
    config = {"models": list(folders), "folders": folders, "fingerprints": prints}
    record = Run("evaluate", config)
    gate = {name: list(refusals) for name in list(folders)[1:]}
    outcome = "refused" if refusals else "passed"
    row = record.ended(outcome=outcome, fingerprint=None, metrics={}, gate=gate)
    with open_store(store) as opened:
        opened.insert("runs", arrow(row))


def test_model_is_promoted_and_rolled_back(traces: "Traces", models: Path) -> None:
    store = traces.store()
    assert run("promote", store, "--model", models / "first", "--without-gate").exit_code == 0
    assert live(models) == "first"
    promoted = run("promote", store, "--model", models / "second")
    assert promoted.exit_code == 0, promoted.output
    assert live(models) == "second"
    assert "A server that runs already keeps its model: restart it." in promoted.output
    assert (models / "live" / "config.json").is_file()
    assert run("rollback", store, "--model").exit_code == 0
    assert live(models) == "first"
    assert changes(store) == [("promote", "first"), ("promote", "second"), ("rollback", "first")]
    again = run("rollback", store, "--live", models / "live")
    assert again.exit_code == 1
    assert "there is nothing to go back to" in again.stderr


def test_rollback_to_a_model_or_by_a_pointer_that_is_gone_says_so(
    traces: "Traces", models: Path
) -> None:
    store = traces.store()
    for name in ("first", "second"):
        run("promote", store, "--model", models / name, "--without-gate")
    (models / "first").rename(models / "put away")
    gone = run("rollback", store, "--model")
    assert gone.exit_code == 1
    assert f"'{models / 'first'}' was live before, but is gone." in gone.stderr
    assert live(models) == "second"
    (models / "live").unlink()
    without = run("rollback", store, "--model")
    assert without.exit_code == 1
    assert f"There is no pointer at '{models / 'live'}' any more" in without.stderr


def test_live_model_that_was_not_trained_here_is_listed_and_a_dry_run_says_that_it_is_one(
    traces: "Traces", models: Path
) -> None:
    store = traces.store()
    options = ["--model", models / "first", "--without-gate"]
    assert "Nothing was written (--dry-run)." in run("promote", store, *options, "--dry-run").output
    assert not (models / "live").exists()
    assert run("promote", store, *options).exit_code == 0
    listed = run("models", store).output
    assert f"{models / 'live'} leads to '{models / 'first'}', which was not trained" in listed


def test_pointer_beside_the_models_can_be_moved_with_them(traces: "Traces", models: Path) -> None:
    run("promote", traces.store(), "--model", models / "first", "--without-gate")
    moved = models.rename(models.with_name("elsewhere"))
    assert live(moved) == "first"
    assert (moved / "live" / "config.json").is_file()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("first", "No gate has judged"),
        ("third", "The gate by logs refused"),
    ],
)
def test_model_that_no_gate_passed_is_refused(
    name: str, told: str, traces: "Traces", models: Path
) -> None:
    store = traces.store()
    result = run("promote", store, "--model", models / name)
    assert result.exit_code == 3
    assert told in result.stderr
    assert not (models / "live").is_symlink()
    assert changes(store) == []


def test_model_that_was_judged_against_another_one_is_refused(
    traces: "Traces", models: Path
) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "third", "--without-gate")
    result = run("promote", store, "--model", models / "second")
    assert result.exit_code == 3
    assert f"compared '{models / 'second'}' with '{models / 'first'}', but" in result.stderr
    assert live(models) == "third"


def test_comparison_by_running_outweighs_the_gate_by_logs(traces: "Traces", models: Path) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "second", "--without-gate")
    compared(store, models, "second", "third", refusals=("serving: the gain may be chance",))
    assert (
        "The gate by running refused" in run("promote", store, "--model", models / "third").stderr
    )
    compared(store, models, "second", "third")
    result = run("promote", store, "--model", models / "third")
    assert result.exit_code == 0, result.output
    assert live(models) == "third"
    assert traces.ask("SELECT gate FROM model_promotions ORDER BY time DESC LIMIT 1") == [
        {"gate": "by running"}
    ]


def test_verdict_on_a_model_that_was_trained_again_in_the_same_folder_does_not_count(
    traces: "Traces", models: Path
) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "second", "--without-gate")
    compared(store, models, "second", "first")
    (models / "first" / "README.md").write_text("The card is no part of the model.")
    assert run("promote", store, "--model", models / "first", "--dry-run").exit_code == 0
    (models / "first" / "config.json").write_text('{"trained": "again"}')
    result = run("promote", store, "--model", models / "first")
    assert result.exit_code == 3
    assert "its files have changed since the gate by running judged it" in result.stderr
    assert live(models) == "second"
    # The verdict that the training itself wrote counts again.
    gate = {"refusals": [], "against": str(models / "second")}
    gate["fingerprint"] = fingerprint(models / "first")
    (models / "first" / "gate.json").write_text(json.dumps(gate))
    assert run("promote", store, "--model", models / "first").exit_code == 0
    assert live(models) == "first"


def test_comparison_with_a_live_model_that_has_changed_since_does_not_count(
    traces: "Traces", models: Path
) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "second", "--without-gate")
    compared(store, models, "second", "first")
    (models / "second" / "config.json").write_text('{"trained": "again"}')
    result = run("promote", store, "--model", models / "first")
    assert result.exit_code == 3
    assert "has changed since the gate by running compared" in result.stderr
    assert live(models) == "second"


def test_control_with_shuffled_rewards_is_refused(traces: "Traces", models: Path) -> None:
    gate = {"refusals": [], "against": str(models / "first"), "shuffled": 1}
    (models / "second" / "gate.json").write_text(json.dumps(gate))
    result = run("promote", traces.store(), "--model", models / "second")
    assert result.exit_code == 3
    assert "it is a control, which was learned from shuffled rewards" in result.stderr


def test_dry_run_changes_nothing(traces: "Traces", models: Path) -> None:
    store = traces.store()
    result = run("promote", store, "--model", models / "second", "--dry-run")
    assert "no model -> " in result.output
    assert not (models / "live").is_symlink()
    assert changes(store) == []


def test_pointer_that_was_moved_by_hand_is_not_rolled_back(traces: "Traces", models: Path) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "first", "--without-gate")
    run("promote", store, "--model", models / "second")
    pointer.point(models / "live", models / "third")
    result = run("rollback", store, "--model")
    assert result.exit_code == 1
    assert "was promoted last: somebody moved it" in result.stderr
    assert live(models) == "third"


def test_folder_in_the_place_of_the_pointer_is_not_replaced(traces: "Traces", models: Path) -> None:
    (models / "live").mkdir()
    result = run("promote", traces.store(), "--model", models / "second")
    assert result.exit_code == 1
    assert "is a folder or a file, not a pointer to a model" in result.stderr


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        ("promote", ["--key", "k"], "Give --key and --flags to promote a policy, or --model"),
        ("promote", ["--live", "x"], "give --model too"),
        ("rollback", [], "Give --key to roll back a policy, or --model"),
        ("rollback", ["--key", "k", "--model"], "--key and --flags are of policies"),
    ],
)
def test_options_of_a_policy_and_of_a_model_do_not_mix(
    command: str, words: list[str], told: str, traces: "Traces"
) -> None:
    result = run(command, traces.store(), *words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_list_of_models_names_the_live_one(traces: "Traces", models: Path) -> None:
    store = traces.store()
    assert "No models." in run("models", store).output
    record = Run("weights", {"algorithm": "rft"})
    row = record.ended(
        outcome="passed",
        fingerprint=None,
        metrics={},
        gate={"gain": 0.25, "lower": 0.125},
        artifact=str(models / "second"),
    )
    with open_store(store) as opened:
        opened.insert("runs", arrow(row))
    run("promote", store, "--model", models / "second")
    shown = "".join(run("models", store).output.split())
    assert "+0.2500" in shown
    assert "live" in shown
    assert traces.ask("SELECT run_id FROM model_promotions") == [{"run_id": record.run_id}]


@pytest.mark.parametrize("left", range(WRITES))
def test_command_killed_before_any_write_leaves_a_live_model_and_an_honest_record(
    left: int, traces: "Traces", models: Path
) -> None:
    store = traces.store()
    run("promote", store, "--model", models / "first", "--without-gate")
    words = [sys.executable, "-c", KILLED, str(left), store, str(models / "second")]
    killed = finish(*words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert live(models) == "first"
    assert run("promote", store, "--model", models / "second").exit_code == 0
    assert live(models) == "second"
    assert changes(store) == [("promote", "first"), ("promote", "second")]
    assert run("rollback", store, "--model").exit_code == 0
    assert live(models) == "first"
    assert not (models / ".live.partial").is_symlink()
