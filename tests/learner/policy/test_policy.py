import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces

LATER = datetime(2026, 11, 1, hour=5)  # noqa: DTZ001 - the store's UTC has no zone
UNIFORM = {"brief": 1 / 3, "friendly": 1 / 3, "careful": 1 / 3}
SUCCESS = {"brief": 0.2, "friendly": 0.35, "careful": 0.6}


@pytest.fixture
def flag_file(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    flag = {
        "state": "ENABLED",
        "variants": {arm: f"Be {arm}." for arm in UNIFORM},
        "defaultVariant": "brief",
        "targeting": {"fractional": [[arm, 1] for arm in UNIFORM]},
    }
    path.write_text(json.dumps({"flags": {"support-prompt": flag}}))
    return path


def log(traces: "Traces", success: dict[str, float], rollouts: int = 600, seed: int = 0) -> None:
    """Log uniform choices; four rollouts a task."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for i in range(rollouts):
        rollout, arm = f"{seed}-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.task(rollout, f"task-{i // 4}")
        traces.reward(rollout, float(rng.random() < success[arm]))


def propose(traces: "Traces", flag_file: Path, *options: str) -> Result:
    required = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    return CliRunner().invoke(cli, ["policy", *required, *options], catch_exceptions=False)


def learn(traces: "Traces", flag_file: Path, *options: str) -> Result:
    return propose(traces, flag_file, "--promote", *options)


def test_long_name_of_a_variant_is_not_cut_in_the_table(traces: "Traces", flag_file: Path) -> None:
    wordy = "careful-and-" * 5
    flag_file.write_text(flag_file.read_text().replace('"careful"', f'"{wordy}"'))
    for i in range(60):
        rollout, arm = f"{i:02}", ("brief", wordy)[i % 2]
        traces.call(rollout)
        traces.arm(rollout, arm, 1 / 3)
        traces.reward(rollout, float(i % 3 == 0))
    told = propose(traces, flag_file).output
    assert "mean reward" in told
    assert "…" not in told


@pytest.mark.parametrize("told", ["nowhere.toml", "may serve fewer than two variants"])
def test_what_is_wrong_is_told_before_a_rule_is_applied(
    traces: "Traces", flag_file: Path, tmp_path: Path, told: str
) -> None:
    log(traces, SUCCESS, rollouts=40)
    features = ["--features", "nowhere.toml"] if told == "nowhere.toml" else []
    if not features:
        document = json.loads(flag_file.read_text())
        weights = [["brief", 1], ["friendly", 0], ["careful", 0]]
        document["flags"]["support-prompt"]["targeting"]["fractional"] = weights
        flag_file.write_text(json.dumps(document))
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    result = propose(traces, flag_file, "--reward", str(rule), *features)
    assert result.exit_code == 1
    assert told in result.stderr
    assert traces.ask("SELECT * FROM scores") == []


def with_variants(flag_file: Path, weights: dict[str, int]) -> None:
    document = json.loads(flag_file.read_text())
    flag = document["flags"]["support-prompt"]
    flag["variants"] = {arm: f"Be {arm}." for arm in weights}
    flag["defaultVariant"] = next(iter(weights))
    flag["targeting"]["fractional"] = [[arm, weight] for arm, weight in weights.items()]
    flag_file.write_text(json.dumps(document))


def test_rollouts_of_none_of_the_variants_in_the_file_teach_nothing(
    traces: "Traces", flag_file: Path
) -> None:
    """The flag file of another agent, or all variants were renamed."""
    log(traces, SUCCESS, rollouts=200)
    with_variants(flag_file, {"short": 1, "long": 1, "brief": 0})
    before = flag_file.read_text()
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "is of a variant in" in result.stderr
    assert "which has: short, long. The rollouts are of: brief, careful, friendly." in result.stderr
    assert "or give the flag file that was served." in result.stderr
    assert flag_file.read_text() == before
    assert traces.ask("SELECT * FROM policies") == []


SERVES_NOTHING = {
    "is disabled, so no variant would be served. Set its state": {"state": "DISABLED"},
    "serves nothing: it has no targeting and no default": {"targeting": {}, "defaultVariant": None},
}


@pytest.mark.parametrize("told", SERVES_NOTHING)
@pytest.mark.parametrize("command", ["policy", "evaluate"])
def test_flag_that_serves_nothing_has_no_live_policy_to_beat(
    traces: "Traces", flag_file: Path, told: str, command: str
) -> None:
    """The whole value of the new policy passed for its gain."""
    log(traces, SUCCESS, rollouts=40)
    document = json.loads(flag_file.read_text())
    document["flags"]["support-prompt"] |= SERVES_NOTHING[told]
    flag_file.write_text(json.dumps(document))
    where = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    result = CliRunner().invoke(cli, [command, *where], catch_exceptions=False)
    assert result.exit_code == 1
    assert told in result.stderr
    assert traces.ask("SELECT * FROM policies") == []


def test_evaluating_a_flag_file_whose_variants_nobody_logged_is_refused(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS, rollouts=40)
    with_variants(flag_file, {"short": 1, "long": 1, "brief": 0})
    where = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    result = CliRunner().invoke(cli, ["evaluate", *where], catch_exceptions=False)
    assert result.exit_code == 1
    assert "which has: short, long. The rollouts are of: brief, careful" in result.stderr


def test_refusal_for_an_arm_without_rollouts_names_it(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    with_variants(flag_file, {"brief": 1, "friendly": 1, "careful": 1, "new": 1})
    result = propose(traces, flag_file)
    assert result.exit_code == 3
    told = "(25.00% of it is of arm 'new', which has no rollout with a reward yet)"
    assert told in result.stderr


def served(path: Path) -> dict[str, int]:
    flag = json.loads(path.read_text())["flags"]["support-prompt"]
    return dict(flag["targeting"]["fractional"])


@pytest.mark.parametrize("estimator", ["snips", "doubly_robust", "ips"])
def test_it_learns_to_serve_the_best_variant(
    traces: "Traces", flag_file: Path, estimator: str
) -> None:
    log(traces, SUCCESS)
    result = learn(traces, flag_file, "--estimator", estimator)
    assert result.exit_code == 0, result.output
    assert "The gate passed." in result.output
    weights = served(flag_file)
    assert sum(weights.values()) == 10_000
    assert weights["careful"] > 8_500
    assert min(weights.values()) >= 333


def test_promoted_policy_is_in_the_file_the_policies_and_the_runs(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    assert learn(traces, flag_file).exit_code == 0
    metadata = json.loads(flag_file.read_text())["flags"]["support-prompt"]["metadata"]
    policy = traces.ask("SELECT * FROM policies")[0]
    assert metadata["lightning.policy.version"] == policy["version"]
    assert policy["status"] == "live"
    propensities = {arm: metadata[f"lightning.propensity.{arm}"] for arm in UNIFORM}
    assert propensities == json.loads(policy["arms"])
    assert propensities == {arm: n / 10_000 for arm, n in served(flag_file).items()}
    run = traces.ask("SELECT * FROM runs")[0]
    assert (run["run_id"], run["command"]) == (policy["run_id"], "policy")
    assert run["outcome"] == "promoted"
    assert json.loads(run["gate"])["lower"] > 0


def test_next_live_policy_retires_the_one_before(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    assert learn(traces, flag_file, "--exploration", "0.5").exit_code == 0
    assert learn(traces, flag_file).exit_code == 0
    statuses = traces.ask("SELECT status FROM policies ORDER BY created")
    assert [row["status"] for row in statuses] == ["retired", "live"]


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 1.0)])
def test_contradictory_rewards_are_told_apart_from_missing_ones(
    traces: "Traces", flag_file: Path, values: tuple[float, float]
) -> None:
    log(traces, SUCCESS, rollouts=200)
    traces.call("more")
    traces.arm("more", "brief", 1 / 3)
    for value in values:
        traces.reward("more", value)
    told = propose(traces, flag_file).output
    assert ("1 rollout has contradictory rewards" in told) == (values[0] != values[1])


def test_a_policy_that_cannot_be_written_is_no_promoted_one(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    (tmp_path / "folder").mkdir()
    result = learn(traces, flag_file, "--output", str(tmp_path / "folder" / ("x" * 250)))
    assert result.exit_code == 1
    assert "passed the gate and is kept as a candidate, but" in result.stderr
    (run,) = traces.ask("SELECT outcome, artifact FROM runs")
    assert run == {"outcome": "passed", "artifact": None}
    assert [row["status"] for row in traces.ask("SELECT status FROM policies")] == ["candidate"]


def test_flag_that_changed_while_a_policy_was_learned_is_left_alone(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    rule = tmp_path / "rewards.py"
    # The rule is applied after the live shares are read: somebody changes them meanwhile.
    rule.write_text(f"""
from pathlib import Path
flags = Path({str(flag_file)!r})
flags.write_text(flags.read_text().replace('["brief", 1]', '["brief", 8]'))

def grade(rollouts):
    return rollouts["rewards"].list.first().struct.field("value")
""")
    result = learn(traces, flag_file, "--reward", f"{rule}:grade")
    assert result.exit_code == 1
    assert "was judged against another live policy: arm 'brief' had 33.33%" in result.stderr
    assert served(flag_file)["brief"] == 8
    (run,) = traces.ask("SELECT outcome FROM runs")
    assert run == {"outcome": "passed"}


def test_the_folder_of_the_output_is_made(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    output = tmp_path / "new" / "learned.json"
    assert learn(traces, flag_file, "--output", str(output)).exit_code == 0
    assert served(output)["careful"] > 8_500
    (run,) = traces.ask("SELECT outcome, artifact FROM runs")
    assert run == {"outcome": "promoted", "artifact": str(output)}


def test_output_leaves_the_served_file_alone(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    before, output = flag_file.read_bytes(), tmp_path / "learned.json"
    assert learn(traces, flag_file, "--output", str(output)).exit_code == 0
    assert flag_file.read_bytes() == before
    assert served(output)["careful"] > 8_500


def test_noise_is_refused_and_the_flag_file_stays_as_it_was(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, dict.fromkeys(UNIFORM, 0.4))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert "The gate refused: the gain may be chance" in result.stderr
    assert " is kept for inspection; " in result.stderr
    assert flag_file.read_bytes() == before
    assert traces.ask("SELECT status FROM policies") == [{"status": "candidate"}]
    assert traces.ask("SELECT outcome, artifact FROM runs") == [
        {"outcome": "refused", "artifact": None}
    ]


def test_first_choice_of_a_rollout_is_the_one_learned_from(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    for i in range(600):
        traces.arm(f"0-{i:04}", "brief", 0.9, time=LATER)
        traces.arm(f"0-{i:04}", "brief", 0.9, key="greeting")
    result = learn(traces, flag_file)
    assert result.exit_code == 0
    (row,) = traces.ask(
        "SELECT count(DISTINCT rollout_id) AS n FROM arms "
        "WHERE key = 'support-prompt' AND arm <> 'brief'"
    )
    assert f"{row['n']} of 600 rollouts served several variants of the flag; the first" in " ".join(
        result.output.split()
    )
    assert served(flag_file)["careful"] > 8_500


def one_rollout(traces: "Traces", arm: str = "brief", propensity: float | None = 0.5) -> None:
    traces.call(arm)
    traces.arm(arm, arm, propensity)
    traces.reward(arm, 1.0)


def no_reward(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5)


def no_choices(traces: "Traces") -> None:
    traces.call("careful")
    traces.reward("careful", 1.0)


def other_rewarded(traces: "Traces") -> None:
    no_reward(traces)
    traces.call("b")
    traces.reward("b", 1.0)


def other_key(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5, key="greeting")
    traces.reward("a", 1.0)


def constant_rewards(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful")


def no_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", None)


def impossible_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", 0.0)


def propensity_above_1(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", 1.5)


def reward_is_nan(traces: "Traces") -> None:
    one_rollout(traces)
    traces.call("careful")
    traces.arm("careful", "careful", 0.5)
    traces.reward("careful", float("nan"))


@pytest.mark.parametrize(
    ("story", "message"),
    [
        (no_reward, "No rollout in the store has a reward"),
        (other_rewarded, "No rollout with a choice for flag 'support-prompt' has a reward."),
        (other_rewarded, "by a rule: --reward FILE.py:FUNCTION"),
        (other_key, "The store has no choices for flag 'support-prompt'. It has: greeting."),
        (no_choices, "It has none of any flag. Let the agent evaluate the flag by OpenFeature"),
        (one_rollout, "Only arm 'brief' of flag 'support-prompt' was tried"),
        (constant_rewards, "All 2 rewards for flag 'support-prompt' are 1, so they say nothing"),
        (no_propensity, "None of 1 choice of arm 'careful' for flag 'support-prompt' has a"),
        (
            impossible_propensity,
            "Rollout 'careful' has a propensity of 0 for flag 'support-prompt', and 1 of 2 choices",
        ),
        (propensity_above_1, "Rollout 'careful' has a propensity of 1.5 for flag"),
        (reward_is_nan, "Reward 'task_success' of rollout 'careful' is nan."),
    ],
)
def test_what_cannot_be_learned_from_is_one_sentence_and_exit_code_1(
    traces: "Traces", flag_file: Path, story: Any, message: str
) -> None:
    story(traces)
    before = flag_file.read_bytes()
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert flag_file.read_bytes() == before
    assert traces.ask("SELECT * FROM policies") == []
    (run,) = traces.ask("SELECT command, outcome, metrics FROM runs")
    assert (run["command"], run["outcome"]) == ("policy", "failed")
    assert message in json.loads(run["metrics"])["error"]


def test_choice_without_a_propensity_is_left_out_and_counted(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    one_rollout(traces, "careful", None)
    result = learn(traces, flag_file)
    assert result.exit_code == 0
    assert "1 choice without a propensity left out." in result.output


def test_learning_promotes_nothing_unless_it_is_asked_to(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    before = flag_file.read_bytes()
    result = propose(traces, flag_file)
    assert result.exit_code == 0, result.output
    assert "The gate passed." in result.output
    assert "Put it there with: lightning-learn promote --store " in result.output
    assert f"--key support-prompt --flags {flag_file}" in result.output
    assert flag_file.read_bytes() == before
    assert traces.ask("SELECT status FROM policies") == [{"status": "candidate"}]
    assert traces.ask("SELECT outcome FROM runs") == [{"outcome": "passed"}]


def test_table_says_what_each_arm_got_and_will_get(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    output = propose(traces, flag_file).output
    for word in ("tried", "mean reward", "95 % interval", "share before", "after"):
        assert word in output
    (row,) = [line for line in output.splitlines() if "careful" in line and "%" in line]
    assert "33.33%" in row
    assert "one-sided" in output
    assert "effective sample size" in output


def test_live_policy_that_is_better_than_the_logged_mean_is_not_replaced_by_a_worse_one(
    traces: "Traces", flag_file: Path
) -> None:
    # 'careful' is live and best; the log, from before, is mostly 'brief'. Beating its mean is easy.
    log(traces, {"brief": 0.2, "friendly": 0.6, "careful": 0.75})
    document = json.loads(flag_file.read_text())
    flag = document["flags"]["support-prompt"]
    flag["targeting"] = {"fractional": [["careful", 98], ["brief", 1], ["friendly", 1]]}
    flag_file.write_text(json.dumps(document))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert flag_file.read_bytes() == before
    (run,) = traces.ask("SELECT gate FROM runs")
    gate = json.loads(run["gate"])
    assert gate["behavior_value"] > 0.6  # and not the .52 that were logged
    assert "To pass:" in result.stderr


def test_refusal_says_what_would_make_it_pass(traces: "Traces", flag_file: Path) -> None:
    log(traces, {"brief": 0.4, "friendly": 0.4, "careful": 0.55}, rollouts=200)
    result = propose(traces, flag_file)
    assert result.exit_code == 3
    assert "more held-out tasks like these" in result.stderr


def test_too_few_rollouts_are_counted_and_refused(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS, rollouts=12)
    before = flag_file.read_bytes()
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert "held-out tasks are too few to judge by (10 needed" in result.stderr
    assert flag_file.read_bytes() == before


def missing_failures(traces: "Traces", success: float = 0.5) -> None:
    """Failures of 'careful' leave no reward."""
    rng = random.Random(1)  # noqa: S311 - sampling, not cryptography
    for i in range(300):
        rollout, arm = f"m-{i:04}", rng.choice(list(UNIFORM))
        good = rng.random() < success
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        if good or arm != "careful":
            traces.reward(rollout, float(good))


def test_rewards_that_are_missing_for_one_arm_are_refused_by_name_and_number(
    traces: "Traces", flag_file: Path
) -> None:
    missing_failures(traces)
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "Rewards are missing more often for one arm than for another" in result.stderr
    assert "'careful' 57.7% of 97" in result.stderr
    assert "'brief' 0.0% of" in result.stderr


def test_missing_reward_can_be_the_worst_one(traces: "Traces", flag_file: Path) -> None:
    missing_failures(traces)
    result = learn(traces, flag_file, "--missing", "worst")
    assert result.exit_code == 3
    assert "counted as the worst reward" in result.output
    (row,) = [line for line in result.output.splitlines() if "careful" in line and "33.33%" in line]
    assert float(row.split("│")[3]) < 0.7


@pytest.mark.parametrize(("treatment", "mean"), [("drop", 1.0), ("0.5", 0.75)])
def test_missing_reward_can_be_dropped_or_a_number(
    traces: "Traces", flag_file: Path, treatment: str, mean: float
) -> None:
    missing_failures(traces)
    result = propose(traces, flag_file, "--missing", treatment)
    (row,) = [line for line in result.output.splitlines() if "careful" in line and "33.33%" in line]
    assert float(row.split("│")[3]) == pytest.approx(mean, abs=0.06)


def test_rewards_that_are_missing_evenly_are_left_out_and_counted(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, {**SUCCESS, "careful": 0.9})
    for i, arm in enumerate(list(UNIFORM) * 10):
        traces.call(f"none-{i}")
        traces.arm(f"none-{i}", arm, 1 / 3)
        traces.task(f"none-{i}", f"task-{i}")
    result = propose(traces, flag_file, "--held-out", "0.5")
    assert result.exit_code == 0, result.output
    assert "Rollouts without a reward: brief" in result.output


def test_rewards_that_are_missing_evenly_could_still_hide_a_loss(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    for i, arm in enumerate(list(UNIFORM) * 70):
        traces.call(f"none-{i}")
        traces.arm(f"none-{i}", arm, 1 / 3)
        traces.task(f"none-{i}", f"task-{i}")
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, "--held-out", "0.5")
    assert result.exit_code == 3
    assert "held-out rollouts have no reward: if the arms that gain traffic failed" in result.stderr
    assert "say with --missing what a missing one means" in result.stderr
    assert flag_file.read_bytes() == before
    result = learn(traces, flag_file, "--held-out", "0.5", "--missing", "drop")
    assert result.exit_code == 0, result.output


def test_rare_large_losses_need_the_range_of_the_rewards(traces: "Traces", flag_file: Path) -> None:
    rng = random.Random(2)  # noqa: S311 - sampling, not cryptography
    for i in range(400):
        rollout, arm = f"r-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.reward(rollout, {"brief": 0.2, "friendly": 0.3, "careful": 0.7}[arm])
    unknown = learn(traces, flag_file)
    assert unknown.exit_code == 3
    assert "a rare loss that was not logged yet could be of any size: give the" in unknown.stderr
    assert learn(traces, flag_file, "--reward-range", "0,1").exit_code == 0
    outside = learn(traces, flag_file, "--reward-range", "0,0.5")
    assert outside.exit_code == 1
    assert "A reward of 0.7 was logged, which is outside --reward-range 0,0.5" in outside.stderr


def test_losses_that_happen_not_to_be_logged_are_no_proof(
    traces: "Traces", flag_file: Path
) -> None:
    """Of 300 steady rewards of an arm, none need be a loss of 50 that comes in .4 %."""
    rng = random.Random(3)  # noqa: S311 - sampling, not cryptography
    for i in range(900):
        rollout, arm = f"h-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.reward(rollout, rng.gauss(0.7 if arm == "careful" else 0.6, 0.05))
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert "the rewards are not all 0 or 1" in result.stderr
    assert learn(traces, flag_file, "--reward-range", "0,1").exit_code == 0


def test_held_out_tasks_judge_and_others_teach(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    assert propose(traces, flag_file).exit_code == 0
    (run,) = traces.ask("SELECT metrics, gate FROM runs")
    learned_from = json.loads(run["metrics"])["learned_from"]
    judged_by = json.loads(run["gate"])["rollouts"]
    assert learned_from + judged_by == 600
    assert judged_by < learned_from


def test_verdict_on_held_out_tasks_is_not_the_one_on_learned_tasks(
    traces: "Traces", flag_file: Path
) -> None:
    # 'careful' is best where the policy learns and worst where it is judged.
    log(traces, SUCCESS)
    store = traces.store()
    from otel_lightning.collector.store import open_store

    with open_store(store) as opened:
        opened.execute(
            "UPDATE reward_events SET value = 1 - value WHERE rollout_id IN ("
            "FROM rollout_tasks SELECT rollout_id "
            "WHERE ('0x' || left(sha256(task_id), 16))::UBIGINT < 0.3 * 2.0 ** 64)"
        )
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert "the gain may be chance" in result.stderr


def test_window_leaves_out_what_is_older_and_newer(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS, rollouts=300)
    for i, arm in enumerate(list(UNIFORM) * 20):
        traces.call(f"new-{i}")
        traces.arm(f"new-{i}", arm, 1 / 3, time=LATER)
        traces.reward(f"new-{i}", float(i % 2))
    newer = propose(traces, flag_file, "--since", "2026-11-01T05:00")
    propose(traces, flag_file, "--until", "2026-11-01T05:00")
    runs = traces.ask("SELECT metrics, gate FROM runs ORDER BY started")
    counts = [
        json.loads(r["metrics"])["learned_from"] + json.loads(r["gate"])["rollouts"] for r in runs
    ]
    assert (newer.exit_code, counts) == (3, [60, 300])
    nothing = propose(traces, flag_file, "--until", "2020-01-01")
    assert "has no choices between --since and --until" in nothing.stderr


def test_drift_of_an_arm_is_shown(traces: "Traces", flag_file: Path) -> None:
    for half, good in enumerate((0.9, 0.2)):
        rng = random.Random(half)  # noqa: S311 - sampling, not cryptography
        for i in range(200):
            rollout, arm = f"{half}-{i}", rng.choice(list(UNIFORM))
            traces.call(rollout)
            traces.arm(rollout, arm, 1 / 3, time=LATER.replace(hour=half, minute=i % 60))
            traces.reward(rollout, float(rng.random() < good))
    output = propose(traces, flag_file).output
    assert "Drift: the mean reward of arm 'brief' moved from 0." in output


def test_propensities_can_be_estimated_from_frequencies_and_the_output_says_so(
    traces: "Traces", flag_file: Path
) -> None:
    rng = random.Random(4)  # noqa: S311 - sampling, not cryptography
    for i in range(600):
        rollout, arm = f"f-{i}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, None)
        traces.task(rollout, f"task-{i // 3}")
        traces.reward(rollout, float(rng.random() < SUCCESS[arm]))
    assert "or estimate them with --propensities frequencies" in learn(traces, flag_file).stderr
    result = learn(traces, flag_file, "--propensities", "frequencies", "--held-out", "0.5")
    assert result.exit_code == 0, result.output
    assert "Propensities: 600 from frequencies." in result.output


def test_frequencies_that_the_input_could_explain_are_refused_unless_arms_are_said_to_be_random(
    traces: "Traces", flag_file: Path
) -> None:
    rng = random.Random(4)  # noqa: S311 - sampling, not cryptography
    for i in range(600):
        rollout, easy = f"f-{i}", i % 6 < 3
        weights = (6, 1, 1) if easy else (1, 1, 6)
        arm = rng.choices(list(UNIFORM), weights)[0]
        traces.call(rollout)
        traces.arm(rollout, arm, None)
        traces.task(rollout, f"task-{i // 3}")
        traces.reward(rollout, float(rng.random() < (0.9 if easy else 0.2)))
    result = learn(traces, flag_file, "--propensities", "frequencies")
    assert result.exit_code == 1
    assert "because the arm depends on how easy the task is" in result.stderr
    told = learn(traces, flag_file, "--propensities", "random").stdout
    assert (
        "600 from frequencies of arms that were drawn at random, as --propensities random" in told
    )


def test_variant_that_is_gone_from_the_file_is_no_error(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    document = json.loads(flag_file.read_text())
    flag = document["flags"]["support-prompt"]
    del flag["variants"]["friendly"]
    flag["targeting"] = {"fractional": [["brief", 1], ["careful", 1]]}
    flag_file.write_text(json.dumps(document))
    result = learn(traces, flag_file)
    assert result.exit_code == 0, result.output
    assert "Not served (retired, or gone from the file): friendly." in result.output
    assert served(flag_file)["careful"] > 9_000
    assert "friendly" not in served(flag_file)


def test_retired_variant_keeps_its_text_and_weight_0_and_a_new_one_its_exploration(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    document = json.loads(flag_file.read_text())
    flag = document["flags"]["support-prompt"]
    flag["variants"]["new"] = "Be new."
    flag["targeting"] = {"fractional": [["brief", 1], ["careful", 1], ["friendly", 0]]}
    flag_file.write_text(json.dumps(document))
    result = learn(traces, flag_file, "--reward-range", "0,1")
    assert result.exit_code == 0, result.output
    assert served(flag_file)["friendly"] == 0
    assert served(flag_file)["new"] == pytest.approx(333, abs=60)
    assert "friendly" in json.loads(flag_file.read_text())["flags"]["support-prompt"]["variants"]


def test_two_policies_that_took_turns_are_refused_by_name(
    traces: "Traces", flag_file: Path
) -> None:
    for i in range(200):
        arm = ("brief", "careful")[i % 3 == 0]
        traces.call(f"r{i:03}")
        traces.task(f"r{i:03}", f"task-{i}")
        traces.arm(f"r{i:03}", arm, 0.5, policy_version=f"v{i % 2}", time=at(i))
        traces.reward(f"r{i:03}", float(i % 3 == 0))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, "--reward-range", "0,1")
    assert result.exit_code == 1
    assert "Policies v0 and v1 were live at the same time: they took turns 198 times" in (
        result.stderr
    )
    assert "the last time at 2026-11-01 08:19:00 UTC" in result.stderr
    assert "leave out with --since" in result.stderr
    assert flag_file.read_bytes() == before
    one = ("--since", "2026-11-01 08:19:00")
    assert "live at the same time" not in learn(traces, flag_file, *one).stderr


def test_version_that_came_back_by_a_rollback_is_not_two_live_at_once(
    traces: "Traces", flag_file: Path
) -> None:
    for i in range(300):
        arm = ("brief", "careful")[i % 3 == 0]
        version = "v1" if 100 <= i < 200 else "v0"
        traces.call(f"r{i:03}")
        traces.task(f"r{i:03}", f"task-{i}")
        traces.arm(f"r{i:03}", arm, 0.5, policy_version=version, time=at(i))
        traces.reward(f"r{i:03}", float(i % 3 == 0))
    assert "live at the same time" not in learn(traces, flag_file).output


@pytest.mark.parametrize("missing", [(), ("--missing", "worst")], ids=["default", "worst"])
def test_rewards_that_are_all_nan_are_refused_and_say_which_reward(
    traces: "Traces", flag_file: Path, missing: tuple[str, ...]
) -> None:
    for i in range(60):
        traces.call(f"r{i:02}")
        traces.arm(f"r{i:02}", ("brief", "careful")[i % 2], 0.5)
        traces.reward(f"r{i:02}", float("nan"))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, *missing)
    assert result.exit_code == 1
    assert "Reward 'task_success' of rollout 'r00' is nan. Send it again with a finite number" in (
        result.stderr
    )
    assert flag_file.read_bytes() == before


def at(number: int) -> datetime:
    """A time so many minutes after five o'clock."""
    return LATER + timedelta(minutes=number)


@pytest.mark.parametrize("treatment", ["nan", "inf", "guess"])
def test_missing_reward_is_never_replaced_by_what_is_no_number(
    traces: "Traces", flag_file: Path, treatment: str
) -> None:
    log(traces, SUCCESS)
    traces.call("unrewarded")
    traces.arm("unrewarded", "brief", 1 / 3)
    result = learn(traces, flag_file, "--missing", treatment)
    assert result.exit_code == 1
    assert f"Unknown treatment '{treatment}' of missing rewards" in result.stderr


def test_reward_too_large_to_compute_with_is_named(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    traces.call("huge")
    traces.arm("huge", "brief", 1 / 3)
    traces.reward("huge", 1e300)
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "Rollout 'huge' has a reward of 1e+300, and 1 of 601 rollouts" in result.stderr


def test_frequencies_are_told_to_be_blind_to_the_input(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    output = learn(traces, flag_file, "--propensities", "frequencies").output
    assert "Frequencies are propensities only if no variant was chosen by the input" in output


def test_nothing_held_out_is_one_sentence_without_numbers(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    result = learn(traces, flag_file, "--held-out", "0")
    assert result.exit_code == 3
    assert "Held out: no rollout, so nothing was judged." in result.stdout
    assert (
        "To pass: hold tasks out: collect rollouts of more tasks, or raise --held-out."
        in result.stderr
    )
    assert "nan" not in result.output


def test_gain_below_the_least_gain_is_not_called_no_gain(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    result = learn(traces, flag_file, "--least-gain", "0.9")
    assert result.exit_code == 3
    assert "To pass: the gain is not above the least gain of 0.9" in result.stderr


def test_interval_of_an_arm_stays_within_the_rewards(traces: "Traces", flag_file: Path) -> None:
    """Three failures are not a mean of exactly 0, and no mean is above 1."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(90):
        traces.call(f"old-{i}")
        traces.arm(f"old-{i}", ("brief", "friendly")[i % 2], 1 / 2, policy_version="before")
        traces.reward(f"old-{i}", float(rng.random() < 0.4))
    for i in range(3):
        traces.call(f"new-{i}")
        traces.arm(f"new-{i}", "careful", 1 / 3)
        traces.reward(f"new-{i}", 0.0)
    result = learn(traces, flag_file, "--reward-range", "0,1")
    (row,) = [line for line in result.output.splitlines() if line.startswith("│ careful")]
    low, _, high = row.split("│")[4].split()
    # Agresti and Coull's interval of 0 of 3: (0 + 2) / (3 + 4) is 2 / 7; its end is 0.6468.
    assert (float(low), float(high)) == pytest.approx((0, 0.6468), abs=1e-3)


def test_gain_that_the_newer_rollouts_lost_is_refused(traces: "Traces", flag_file: Path) -> None:
    """The arm was the best for two thirds of the time, then the agent's world changed."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(1500):
        rollout, arm = f"{i:05}", list(UNIFORM)[i % 3]
        traces.call(rollout)
        traces.arm(rollout, arm, 1 / 3, time=LATER + timedelta(minutes=i))
        success = SUCCESS if i < 1000 else SUCCESS | {"careful": 0.1}
        traces.reward(rollout, float(rng.random() < success[arm]))
    result = learn(traces, flag_file, "--reward-range", "0,1")
    assert result.exit_code == 3
    assert "the gain fell from +" in " ".join(result.stderr.split())
    since = LATER + timedelta(minutes=1000)
    only_new = learn(
        traces, flag_file, "--reward-range", "0,1", "--since", f"{since:%Y-%m-%d %H:%M}"
    )
    assert "the gain fell" not in only_new.stderr
