"""`lightning-learn gate`: proposed prompts win only by re-runs of the same held-out tasks."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.prompt_server import RULES, true_success
from support.stores import ask

from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.serving import flag_document
from otel_lightning.learner.policy.serving import flag_file as files
from otel_lightning.learner.prompts.compare import Comparison, apply_decision, decide
from otel_lightning.learner.rollout_runner import Report

if TYPE_CHECKING:
    from conftest import Traces

KEY = "gate-prompt"
FIRST = "You answer the requests of customers."
RIGHT = "\n".join([FIRST, *(f"{kind}: {word}." for kind, word in RULES.items())])


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    flag = {
        "state": "ENABLED",
        "defaultVariant": "careful",
        "variants": {
            "careful": FIRST,
            "brief": "Brief.",
            "careful-0001": RIGHT,
            "careful-0002": FIRST,
        },
        "targeting": {
            "fractional": [["careful", 60], ["brief", 30], ["careful-0001", 5], ["careful-0002", 5]]
        },
        "metadata": {
            "lightning.candidate.careful-0001": "careful r1",
            "lightning.candidate.careful-0002": "careful r1",
        },
    }
    path.write_text(json.dumps({"flags": {KEY: flag}}, indent=2))
    return path


def report(success: dict[str, float], tasks: int, samples: int, seed: int) -> Report:
    """A run of some arms on the same tasks, each with a true success."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"{arm}/{task}/{sample}", arm, str(task), sample, float(rng.random() < share))
        for arm, share in success.items()
        for task in range(tasks)
        for sample in range(samples)
    ]
    return Report(
        run_id="r",
        planned=len(rows),
        done_before=0,
        statuses={"ok": len(rows)},
        rewards={row[0]: row[4] for row in rows},
        tasks={row[0]: row[2] for row in rows},
        samples={row[0]: row[3] for row in rows},
        arms={row[0]: row[1] for row in rows},
        arm_names=list(success),
    )


def shares(flags: Path) -> dict[str, float]:
    return flag_document.live_shares(files.read_flag_file(flags, KEY), KEY)


@pytest.mark.slow
def test_in_a_world_of_noise_at_most_one_candidate_in_twenty_is_promoted(flags: Path) -> None:
    comparison, names = Comparison(KEY, flags), ["live", "a", "b", "c"]
    promoted = 0
    for seed in range(100):
        ran = report(dict.fromkeys(names, 0.5), 30, 2, seed)
        promoted += decide(comparison, ran, f"d{seed}").winner is not None
    assert promoted <= 5 * 3  # of 300 candidates; each passes by chance in 1 of 60 at most


def test_prompt_that_states_the_rules_is_promoted_after_300_paired_rollouts(flags: Path) -> None:
    worlds = {"careful": true_success(FIRST), "careful-0001": true_success(RIGHT)}
    assert worlds == {"careful": 0.25, "careful-0001": pytest.approx(0.9)}
    for seed in range(5):
        decision = decide(Comparison(KEY, flags), report(worlds, 50, 3, seed), "d")
        assert decision.winner == "careful-0001"


def test_winner_takes_the_place_of_the_live_variant_and_rollback_undoes_it(
    traces: "Traces", flags: Path
) -> None:
    traces.store()
    before = shares(flags)
    comparison = Comparison(KEY, flags)
    worlds = {"careful": 0.2, "careful-0001": 0.9, "careful-0002": 0.2}
    decision = decide(comparison, report(worlds, 40, 2, 0), "gate-1")
    applied = apply_decision(traces.path, comparison, decision)
    wanted = {"careful": 0.1, "brief": 0.3, "careful-0001": 0.6}
    assert applied.shares == shares(flags) == pytest.approx(wanted)
    text = flags.read_text()
    assert apply_decision(traces.path, comparison, decision) == applied  # as if killed and resumed
    assert flags.read_text() == text
    assert [row["version"] for row in traces.ask("SELECT version FROM policies")] == ["gate-1"]
    assert [row["action"] for row in traces.ask("SELECT action FROM promotions")] == ["promote"]
    (run,) = traces.ask("SELECT command, outcome, gate FROM runs")
    assert (run["command"], run["outcome"]) == ("gate", "promoted")
    assert json.loads(run["gate"])["passed"]
    where = ["--store", str(traces.path), "--key", KEY]
    assert CliRunner().invoke(cli, ["rollback", *where]).exit_code == 0
    assert shares(flags) == before


def test_winner_that_cannot_be_written_is_no_promoted_one(traces: "Traces", flags: Path) -> None:
    traces.store()
    # The longest names leave no room for that of the temporary file beside it.
    unwritable = flags.rename(flags.with_name("x" * 250))
    comparison = Comparison(KEY, unwritable)
    worlds = {"careful": 0.2, "careful-0001": 0.9}
    decision = decide(comparison, report(worlds, 40, 2, 0), "gate-1")
    with pytest.raises(DataError, match=r"'careful-0001' won and is recorded, but '.*' cannot be"):
        apply_decision(traces.path, comparison, decision)
    recorded = "SELECT outcome, artifact, status FROM runs JOIN policies USING (run_id)"
    (run,) = traces.ask(recorded)
    assert run == {"outcome": "passed", "artifact": None, "status": "candidate"}
    assert traces.ask("SELECT * FROM promotions") == []
    comparison = Comparison(KEY, unwritable.rename(flags))
    apply_decision(traces.path, comparison, decision)
    promoted = {"outcome": "promoted", "artifact": str(flags), "status": "live"}
    assert traces.ask(recorded) == [promoted]


def test_candidates_that_do_not_win_get_no_more_traffic(traces: "Traces", flags: Path) -> None:
    traces.store()
    comparison = Comparison(KEY, flags)
    worlds = {"careful": 0.5, "careful-0001": 0.5, "careful-0002": 0.4}
    decision = decide(comparison, report(worlds, 40, 2, 0), "gate-1")
    assert decision.winner is None
    apply_decision(traces.path, comparison, decision)
    assert shares(flags) == pytest.approx({"careful": 2 / 3, "brief": 1 / 3}, abs=1e-4)
    assert traces.ask("SELECT outcome FROM runs") == [{"outcome": "refused"}]


def test_run_without_rewards_is_no_decision(flags: Path) -> None:
    ran = Report("r", 2, 0, {"ok": 2}, {}, arm_names=["careful", "brief"])
    with pytest.raises(DataError, match="No rollout of run 'r' has a reward"):
        decide(Comparison(KEY, flags), ran, "d")


AGENT = """
import json, os, random, re, sys
task = json.load(sys.stdin)
flag = json.load(open(os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"]))["flags"]["gate-prompt"]
rules = dict(re.findall(r"^(\\w+): (\\w+)[.]$", flag["variants"][flag["defaultVariant"]], re.M))
chance = 0.9 if task["kind"] in rules else 0.25
sys.exit(random.Random(int(os.environ["LIGHTNING_SEED"])).random() > chance)
"""


def run_gate(store: Path, flags: Path, folder: Path, *options: str, first: int = 0) -> Result:
    (folder / "agent.py").write_text(AGENT)
    kinds = list(RULES)
    # Ten of the tasks are five under two ids each.
    cases = [first + (i % 5 if i < 10 else i) for i in range(50)]
    rows = [{"id": f"t{i}", "kind": kinds[i % 5], "case": case} for i, case in enumerate(cases)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    where = ["--store", str(store), "--key", KEY, "--flags", str(flags)]
    what = ["--tasks", str(folder / "tasks.jsonl"), "--exit-code-is-reward", *options]
    agent = [sys.executable, "-I", "-S", str(folder / "agent.py")]
    return CliRunner().invoke(cli, ["gate", *where, *what, "--", *agent], catch_exceptions=False)


def test_command_runs_all_variants_on_held_out_tasks_and_serves_the_winner(
    served: Path, flags: Path, tmp_path: Path
) -> None:
    result = run_gate(served, flags, tmp_path, "--promote", "--samples", "1")
    assert result.exit_code == 0, result.output
    assert "The gate passed: careful-0001 is served." in result.stdout
    assert "the same input as a task to learn from, under another id" in result.stderr
    assert "careful-0002 is refused" in result.stderr
    assert shares(flags)["careful-0001"] == pytest.approx(0.6)
    rows: list[dict[str, Any]] = ask(
        served,
        "SELECT arm, list(DISTINCT task_id ORDER BY task_id) AS tasks, count(*) AS n"
        " FROM attempts WHERE run_id LIKE 'gate-%' GROUP BY arm",
    )
    assert {row["arm"] for row in rows} == {"careful", "careful-0001", "careful-0002"}
    assert len({tuple(row["tasks"]) for row in rows}) == 1
    assert {row["n"] for row in rows} == {len(rows[0]["tasks"])}


def test_variant_that_was_edited_is_run_and_judged_anew(
    served: Path, flags: Path, tmp_path: Path
) -> None:
    options = ["--samples", "2", "--candidate", "careful-0001", "--against", "careful", "--promote"]
    assert run_gate(served, flags, tmp_path, *options).exit_code == 0
    assert shares(flags)["careful-0001"] > 0.5
    document = json.loads(flags.read_text())
    document["flags"][KEY]["variants"]["careful-0001"] = "Brief."
    flags.write_text(json.dumps(document))
    result = run_gate(served, flags, tmp_path, *options)
    assert result.exit_code == 3, result.output
    assert "careful-0001 is refused" in result.stderr
    assert "careful-0001" not in shares(flags)


def test_comparison_that_is_repeated_with_other_settings_is_counted(
    served: Path, flags: Path, tmp_path: Path
) -> None:
    options = ["--candidate", "careful-0002", "--against", "careful"]
    told = "judged by the same tasks before, with other candidates, seeds or numbers of samples"
    for samples, others in (("1", 0), ("1", 0), ("2", 1), ("3", 2), ("1", 2)):
        result = run_gate(served, flags, tmp_path, *options, "--samples", samples, first=1000)
        assert result.exit_code == 3, result.output
        assert (told in result.stderr) == bool(others)
    assert "2 other comparisons were judged" in result.stderr
    assert "With 3 comparisons the probability that one passes by chance is" in result.stderr
    assert "0.05 / 3 = 0.017" in result.stderr
    rows = ask(served, "SELECT outcome FROM runs WHERE config ->> '$.run.samples' = '3'")
    assert rows == [{"outcome": "refused"}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--failed-reward", "-1"], "--failed-reward is -1, which is neither 0 nor 1"),
        (
            ["--failed-reward", "-1", "--reward-range", "0,1"],
            "--failed-reward is -1, which is outside --reward-range, from 0 to 1",
        ),
    ],
)
def test_reward_of_failed_rollouts_that_no_gate_takes_is_refused_before_anything_runs(
    flags: Path, tmp_path: Path, options: list[str], told: str
) -> None:
    store = tmp_path / "t.duckdb"
    result = run_gate(store, flags, tmp_path, "--exit-code-is-reward", *options)
    assert (result.exit_code, store.exists()) == (1, False)
    assert told in result.stderr


def test_range_of_the_rewards_allows_for_a_loss_that_did_not_happen(
    served: Path, flags: Path, tmp_path: Path
) -> None:
    options = ["--samples", "1", "--candidate", "careful-0001", "--against", "careful"]
    assert run_gate(served, flags, tmp_path, *options).exit_code == 0
    wide = run_gate(served, flags, tmp_path, *options, "--reward-range", "-10,1")
    assert wide.exit_code == 3, wide.output
    assert "confidence for rewards in [-10, 1], not above 0" in wide.stderr
    narrow = run_gate(served, flags, tmp_path, *options, "--reward-range", "0.5,1")
    assert narrow.exit_code == 1
    assert "A reward of 0 was logged, which is outside --reward-range 0.5,1" in narrow.stderr


def test_promotion_that_a_canary_forbids_is_refused_before_anything_runs(
    flags: Path, tmp_path: Path
) -> None:
    document = json.loads(flags.read_text())
    document["flags"][KEY]["metadata"] |= {"lightning.policy.version": "p1@0.1"}
    flags.write_text(json.dumps(document))
    store = tmp_path / "t.duckdb"
    result = run_gate(store, flags, tmp_path, "--promote")
    assert (result.exit_code, store.exists()) == (1, False)
    assert "serves a canary of policy p1. Finish it first" in result.stderr


def test_flag_without_proposals_is_told(served: Path, flags: Path, tmp_path: Path) -> None:
    document = json.loads(flags.read_text())
    del document["flags"][KEY]["metadata"]
    flags.write_text(json.dumps(document))
    result = run_gate(served, flags, tmp_path)
    assert result.exit_code == 1
    assert "serves no proposed variant beside 'careful'" in result.stderr
    result = run_gate(served, flags, tmp_path, "--candidate", "careful")
    assert result.exit_code == 1
    assert "'careful' cannot be judged against itself: it is the variant to beat" in result.stderr
    unknown = run_gate(served, flags, tmp_path, "--candidate", "bold")
    assert "has no variant 'bold'. It has: careful, brief" in unknown.stderr
