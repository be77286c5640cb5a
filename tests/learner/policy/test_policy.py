import json
import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.logged_choices import (
    LATER,
    SUCCESS,
    UNIFORM,
    learn,
    log,
    propose,
    served,
    with_variants,
)

from otel_lightning.collector.store import open_store

if TYPE_CHECKING:
    from conftest import Traces


def test_long_name_of_a_variant_is_not_cut_in_the_table(traces: "Traces", flag_file: Path) -> None:
    wordy = "careful-and-" * 5
    flag_file.write_text(flag_file.read_text().replace('"careful"', f'"{wordy}"'))
    for i in range(60):
        rollout, arm = f"{i:02}", ("brief", wordy)[i % 2]
        traces.call(rollout)
        traces.arm(rollout, arm, 1 / 3)
        traces.reward(rollout, float(i % 3 == 0))
    output = propose(traces, flag_file).output
    assert "mean reward" in output
    assert "…" not in output


def test_refusal_for_an_arm_without_rollouts_names_it(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    with_variants(flag_file, {"brief": 1, "friendly": 1, "careful": 1, "new": 1})
    result = propose(traces, flag_file)
    assert result.exit_code == 3
    told = "(25.00% of it is of arm 'new', which has no rollout with a reward yet)"
    assert told in result.stderr


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


def test_a_refused_policy_leaves_no_new_folder(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    output = tmp_path / "new" / "learned.json"
    assert learn(traces, flag_file, "--output", str(output), "--least-gain", "0.9").exit_code == 3
    assert not output.parent.exists()


def test_output_that_was_not_written_is_not_called_unchanged(
    traces: "Traces", flag_file: Path, tmp_path: Path
) -> None:
    log(traces, SUCCESS)
    output = tmp_path / "100%s.json"
    refused = propose(traces, flag_file, "--output", str(output), "--least-gain", "0.9")
    assert f"{output} was not written." in refused.stderr
    passed = propose(traces, flag_file, "--output", str(output))
    assert f"{output} was not written. Put it into {flag_file} with: lightning" in passed.output
    assert not output.exists()
    output.write_bytes(flag_file.read_bytes())
    passed = propose(traces, flag_file, "--output", str(output))
    assert f"{output} is as it was. Put it into {output} with: lightning" in passed.output


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


def test_learning_promotes_nothing_unless_it_is_asked_to(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    before = flag_file.read_bytes()
    result = propose(traces, flag_file)
    assert result.exit_code == 0, result.output
    assert "The gate passed." in result.output
    assert f"Put it into {flag_file} with: lightning-learn promote --store " in result.output
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
