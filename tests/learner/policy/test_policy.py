import json
import random
from datetime import datetime
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


def log(traces: "Traces", success: dict[str, float], rollouts: int = 300, seed: int = 0) -> None:
    """Log uniform choices; four rollouts a task."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for i in range(rollouts):
        rollout, arm = f"{seed}-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.task(rollout, f"task-{i // 4}")
        traces.reward(rollout, float(rng.random() < success[arm]))


def learn(traces: "Traces", flag_file: Path, *options: str) -> Result:
    required = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    return CliRunner().invoke(cli, ["policy", *required, *options], catch_exceptions=False)


def served(path: Path) -> dict[str, int]:
    flag = json.loads(path.read_text())["flags"]["support-prompt"]
    return dict(flag["targeting"]["fractional"])


@pytest.mark.parametrize("estimator", ["snips", "doubly_robust"])
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
    assert min(weights.values()) >= 500


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
    assert learn(traces, flag_file).exit_code == 0
    assert learn(traces, flag_file).exit_code == 0
    statuses = traces.ask("SELECT status FROM policies ORDER BY created")
    assert [row["status"] for row in statuses] == ["retired", "live"]


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
    assert flag_file.read_bytes() == before
    assert traces.ask("SELECT status FROM policies") == [{"status": "candidate"}]
    assert traces.ask("SELECT outcome, artifact FROM runs") == [
        {"outcome": "refused", "artifact": None}
    ]


def test_first_choice_of_a_rollout_is_the_one_learned_from(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    for i in range(300):
        traces.arm(f"0-{i:04}", "brief", 0.9, time=LATER)
        traces.arm(f"0-{i:04}", "brief", 0.9, key="greeting")
    assert learn(traces, flag_file).exit_code == 0
    assert served(flag_file)["careful"] > 8_500


def one_rollout(traces: "Traces", arm: str = "brief", propensity: float | None = 0.5) -> None:
    traces.call(arm)
    traces.arm(arm, arm, propensity)
    traces.reward(arm, 1.0)


def no_reward(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5)


def other_rewarded(traces: "Traces") -> None:
    no_reward(traces)
    traces.call("b")
    traces.reward("b", 1.0)


def other_key(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5, key="greeting")
    traces.reward("a", 1.0)


def unknown_arm(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "poetic")


def no_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", None)


def impossible_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", 0.0)


@pytest.mark.parametrize(
    ("story", "message"),
    [
        (no_reward, "No rollout in the store has a reward"),
        (other_rewarded, "No rollout with a choice for flag 'support-prompt' has a reward."),
        (other_key, "The store has no choices for flag 'support-prompt'. It has: greeting."),
        (one_rollout, "Only arm 'brief' of flag 'support-prompt' was tried"),
        (unknown_arm, "Arm 'poetic' of flag 'support-prompt' was tried, but"),
        (no_propensity, "None of the 1 choices of arm 'careful' for flag 'support-prompt' has a"),
        (impossible_propensity, "Rollout 'careful' has a propensity of 0 for flag"),
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
    assert "1 choices without a propensity left out." in result.output
