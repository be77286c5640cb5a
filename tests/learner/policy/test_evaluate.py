"""lightning-learn evaluate: what a policy would be worth."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces

SUCCESS = {"brief": 0.2, "friendly": 0.35, "careful": 0.6}
SKEWED = {"brief": 0.6, "friendly": 0.3, "careful": 0.1}


def log(traces: "Traces", **columns: Any) -> None:
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(600):
        rollout, (arm,) = f"{i:04}", rng.choices(list(SKEWED), SKEWED.values())
        traces.call(rollout, service_name=f"desk-{i % 2}")
        traces.arm(rollout, arm, SKEWED[arm], **columns)
        traces.reward(rollout, float(rng.random() < SUCCESS[arm]))


def evaluate(traces: "Traces", *options: str, columns: int = 200) -> Result:
    words = ["evaluate", "--store", traces.store(), "--key", "support-prompt", *options]
    return CliRunner().invoke(
        cli, words, catch_exceptions=False, env={"COLUMNS": str(columns), "TERM": "dumb"}
    )


def test_intervals_are_drawn_only_if_the_terminal_has_room_for_them(traces: "Traces") -> None:
    log(traces)
    for columns, has_room in ((130, False), (150, True)):
        output = evaluate(traces, "--arm", "brief", columns=columns).output
        (row,) = [line for line in output.splitlines() if "doubly_robust" in line]
        assert ("●" in row, "…" in row) == (has_room, False)


@pytest.mark.parametrize("scale", [1, -1234])
def test_no_table_is_cut_at_80_columns(traces: "Traces", scale: int) -> None:
    wordy = "careful-and-" * 5
    for i in range(60):
        rollout, arm = f"{i:02}", ("brief", wordy)[i % 2]
        traces.call(rollout, service_name="-service" * 8)
        traces.arm(rollout, arm, 0.5)
        traces.reward(rollout, scale * float(i % 3 == 0))
    found = evaluate(traces, "--arm", wordy, "--by", "service_name", columns=80)
    assert found.exit_code == 0, found.output
    assert "bootstrap" in found.output
    assert "…" not in found.output
    assert max(len(line) for line in found.output.splitlines() if line[:1] in "┏│") <= 80


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--key", "prompt", "--least-gain", "0.2"], "--least-gain has no effect with --key"),
        (["--key", "prompt", "--", "true"], "AGENT has no effect with --key"),
        (["--model", "a", "--missing", "drop"], "--missing has no effect with --model"),
        (["--model", "a", "--key", "prompt"], "--key has no effect with --model"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(words: list[str], named: str) -> None:
    result = CliRunner().invoke(cli, ["evaluate", *words])
    assert (result.exit_code, named in result.output) == (2, True), result.output


def values(result: Result) -> dict[str, float]:
    rows = [line.split("│") for line in result.output.splitlines() if line.startswith("│")]
    return {row[1].strip(" *"): float(row[2]) for row in rows if "%" not in row[2]}


def test_value_of_an_arm_is_near_its_success_whoever_chose_it(traces: "Traces") -> None:
    log(traces)
    result = evaluate(traces, "--arm", "careful")
    assert result.exit_code == 0, result.output
    found = values(result)
    assert set(found) == {
        "ips", "snips", "clipped_ips", "direct_method", "doubly_robust", "switch_dr", "dr_os",
    }  # fmt: skip
    for method in ("snips", "doubly_robust", "direct_method"):
        assert found[method] == pytest.approx(0.6, abs=0.15)
    assert "least propensity" in result.output
    assert "effective sample size" in result.output


def test_value_of_the_logged_policy_is_the_logged_mean(traces: "Traces", tmp_path: Path) -> None:
    log(traces)
    flags = tmp_path / "flags.json"
    targeting = {"fractional": [[arm, round(100 * share)] for arm, share in SKEWED.items()]}
    flag = {"variants": dict.fromkeys(SKEWED, "x"), "targeting": targeting}
    flags.write_text(json.dumps({"flags": {"support-prompt": flag}}))
    result = evaluate(traces, "--flags", str(flags))
    mean = sum(SKEWED[arm] * SUCCESS[arm] for arm in SKEWED)
    assert values(result)["ips"] == pytest.approx(mean, abs=0.06)
    (run,) = traces.ask("SELECT command, outcome, metrics FROM runs")
    assert (run["command"], run["outcome"]) == ("evaluate", "done")
    first = json.loads(run["metrics"])["estimates"][0]
    assert first["betting"][0] < first["value"] < first["betting"][1]


def test_biased_estimators_have_intervals_and_are_told_from_the_others(traces: "Traces") -> None:
    log(traces)
    result = evaluate(traces, "--arm", "careful")
    marked = {line.split("│")[1].strip() for line in result.output.splitlines() if " * " in line}
    assert marked == {"clipped_ips *", "direct_method *", "switch_dr *", "dr_os *"}
    assert "* biased: these intervals are for the mean of the estimator" in result.output
    (run,) = traces.ask("SELECT metrics FROM runs")
    for one in json.loads(run["metrics"])["estimates"]:
        assert one["standard_error"] > 0.001
        for name in ("bernstein", "betting"):
            assert one[name][0] < one["value"] < one[name][1]
        assert one["biased"] == (f"{one['method']} *" in marked)


def test_range_of_rewards_is_the_given_one_and_no_reward_may_be_outside(traces: "Traces") -> None:
    log(traces)
    plain = evaluate(traces, "--arm", "careful")
    assert "Rewards are in [0, 1] (as logged" in plain.output
    wide = evaluate(traces, "--arm", "careful", "--reward-range", "-1,3")
    assert wide.exit_code == 0
    assert "Rewards are in [-1, 3] (as given)." in wide.output
    assert values(wide) == values(plain)
    outside = evaluate(traces, "--arm", "careful", "--reward-range", "0,0.5")
    assert outside.exit_code == 1
    assert "A reward of 1 was logged, which is outside --reward-range 0,0.5" in outside.stderr


def test_error_that_one_task_does_not_tell_is_left_empty(traces: "Traces") -> None:
    for rollout, arm in (("a", "brief"), ("b", "careful")):
        traces.call(rollout)
        traces.arm(rollout, arm, 0.5)
        traces.reward(rollout, float(arm == "brief"))
        traces.task(rollout, "only")
    result = evaluate(traces, "--arm", "brief")
    assert result.exit_code == 0, result.output
    assert "2 rollouts of 1 task;" in result.output
    assert "nan" not in result.output


@pytest.mark.parametrize("columns", [80, 200])
def test_equal_rewards_have_a_value_and_no_interval_without_their_range(
    traces: "Traces", columns: int
) -> None:
    for i in range(20):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "xy"[i % 2], 0.5)
        traces.reward(f"r{i}", 0.7)
    result = evaluate(traces, "--arm", "x", columns=columns)
    assert result.exit_code == 0, result.output
    (run,) = traces.ask("SELECT metrics FROM runs")
    for one in json.loads(run["metrics"])["estimates"]:
        assert (one["bernstein"], one["betting"]) == (None, None)
    ranged = evaluate(traces, "--arm", "x", "--reward-range", "0,1", columns=columns)
    assert ranged.exit_code == 0
    newest = json.loads(traces.ask("SELECT metrics FROM runs ORDER BY ended")[-1]["metrics"])
    for one in newest["estimates"]:
        assert one["betting"][0] < one["value"] < one["betting"][1]


def test_propensities_that_do_not_say_how_often_an_arm_was_drawn_are_named(
    traces: "Traces",
) -> None:
    for i in range(100):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "xy"[i % 2], 0.05)
        traces.reward(f"r{i}", float(i % 10 > 0))
        traces.task(f"r{i}", f"t{i}")
    result = evaluate(traces, "--arm", "x", "--task-by", "id")
    assert "its mean importance weight is 10.00." in result.output  # half of them have 1 / .05
    assert "The importance weights average 10.00 and not 1: the propensities do not" in (
        result.output
    )
    (run,) = traces.ask("SELECT metrics FROM runs")
    (ips,) = (e for e in json.loads(run["metrics"])["estimates"] if e["method"] == "ips")
    assert ips["value"] > 1
    assert ips["betting"] is None  # no value from 0 to 1 is in it


def test_a_propensity_whose_weight_cannot_be_computed_with_is_refused(traces: "Traces") -> None:
    log(traces)
    traces.call("tiny")
    traces.arm("tiny", "careful", 1e-300)
    traces.reward("tiny", 1.0)
    result = evaluate(traces, "--arm", "careful")
    assert result.exit_code == 1
    assert "Rollout 'tiny' has a propensity of 1e-300" in result.stderr


def test_small_rewards_are_told_with_their_digits(traces: "Traces") -> None:
    for i in range(40):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "xy"[i % 2], 0.5)
        traces.reward(f"r{i}", -0.00002 * (1 + i % 2))  # such as a cost in dollars
    result = evaluate(traces, "--arm", "x", "--reward-range", "-0.0001,0")
    assert "mean reward is -3e-05." in result.output
    assert values(result)["snips"] == pytest.approx(-0.00002)


def test_a_value_that_no_policy_can_have_is_named_and_left_as_it_is(traces: "Traces") -> None:
    # The arm has a propensity of .25 and was drawn in two of four rollouts, with a reward of 1.
    for rollout, arm, reward in (
        ("a", "x", 1.0),
        ("b", "x", 1.0),
        ("c", "y", 0.0),
        ("d", "y", 1.0),
    ):
        traces.call(rollout)
        traces.arm(rollout, arm, 0.25 if arm == "x" else 0.75)
        traces.reward(rollout, reward)
        traces.task(rollout, rollout)
    result = evaluate(traces, "--arm", "x", "--by", "service_name")
    assert values(result)["ips"] == 2.0  # (4 + 4) / 4
    (note,) = (line for line in result.output.splitlines() if line.startswith("Outside of"))
    named = note.partition("the value of ")[2].partition(". No policy")[0].split(", ")
    told = {name: value for name, value in values(result).items() if not 0 <= value <= 1}
    assert {name.removeprefix("segment ") for name in named} == set(told)
    assert {"ips", "clipped_ips"} <= set(told)
    assert "snips" not in named
    inside = evaluate(traces, "--arm", "x", "--reward-range", "0,3")
    assert "Outside of" not in inside.output


@pytest.mark.parametrize(
    ("options", "told", "exit_code"),
    [
        (["--arm", "brief", "--by", "no_such"], "--by 'no_such' does not work", 1),
        (["--version", "v9"], "has no policy 'v9'", 1),
        (["--flags", "nowhere.json"], "nowhere.json", 2),
    ],
)
def test_what_is_wrong_is_told_before_a_rule_is_applied(
    traces: "Traces", tmp_path: Path, options: list[str], told: str, exit_code: int
) -> None:
    log(traces)
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    result = evaluate(traces, *options, "--reward", str(rule))
    assert result.exit_code == exit_code
    assert told in result.stderr
    assert traces.ask("SELECT * FROM scores") == []


def test_the_folder_of_plots_is_made_and_the_numbers_come_first(
    traces: "Traces", tmp_path: Path
) -> None:
    log(traces)
    path = tmp_path / "new" / "value.svg"
    assert evaluate(traces, "--arm", "brief", "--plots", str(path)).exit_code == 0
    before = path.stat().st_ino
    assert evaluate(traces, "--arm", "careful", "--plots", str(path)).exit_code == 0
    assert path.stat().st_ino != before, "a reader of the old picture keeps all of it"
    assert [one.name for one in path.parent.iterdir()] == ["value.svg"]
    (tmp_path / "file").write_text("")
    failed = evaluate(traces, "--arm", "brief", "--plots", str(tmp_path / "file" / "value.svg"))
    assert failed.exit_code == 1
    assert "doubly_robust" in failed.stdout


def test_segments_are_evaluated_apart(traces: "Traces") -> None:
    log(traces)
    result = evaluate(traces, "--arm", "brief", "--by", "service_name")
    assert {"desk-0", "desk-1"} <= set(values(result))


def test_arm_without_a_rollout_is_named(traces: "Traces", tmp_path: Path) -> None:
    log(traces)
    result = evaluate(traces, "--arm", "poetic")
    assert result.exit_code == 1
    assert (
        "Arm 'poetic' of flag 'support-prompt' was never logged, so nothing tells its value. "
        "Logged: brief, careful, friendly." in result.stderr
    )
    flags = tmp_path / "flags.json"
    targeting = {"fractional": [["brief", 75], ["poetic", 25]]}
    flag = {"variants": {"brief": "x", "poetic": "y"}, "targeting": targeting}
    flags.write_text(json.dumps({"flags": {"support-prompt": flag}}))
    result = evaluate(traces, "--flags", str(flags))
    assert "Arm 'poetic' has 25.00% of the policy and no logged rollout" in result.output
    assert "nan" not in result.output


def test_propensities_that_are_not_those_of_the_version_are_named(traces: "Traces") -> None:
    log(traces, policy_version="v1")
    store = traces.store()
    from otel_lightning.collector.store import open_store

    with open_store(store) as opened:
        opened.execute(
            "INSERT INTO policies (key, version, arms) "
            """VALUES ('support-prompt', 'v1', '{"brief": 0.9, "careful": 0.1}')"""
        )
    output = evaluate(traces, "--version", "v1").output
    assert "choices of arm 'brief' by policy v1 have a propensity of 0.6" in output
    unknown = evaluate(traces, "--version", "v2")
    assert unknown.exit_code == 1
    assert "has no policy 'v2'. It has: v1." in unknown.stderr


@pytest.mark.slow
def test_policies_with_features_are_evaluated_as_they_serve(
    traces: "Traces", tmp_path: Path
) -> None:
    """An arm is right for half of the inputs; a policy that sees them is worth .8, others .55."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(800):
        refund, arm = i % 2 == 0, rng.choice(("brief", "careful"))
        text = "I want a refund" if refund else "Where is my order?"
        messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
        traces.call(f"r{i}", input_messages=json.dumps(messages))
        traces.task(f"r{i}", f"t{i}")
        traces.arm(f"r{i}", arm, 0.5)
        good = rng.random() < (0.8 if (arm == "careful") == refund else 0.3)
        traces.reward(f"r{i}", float(good))
    spec, flags = tmp_path / "features.toml", tmp_path / "flags.json"
    spec.write_text("[features]\nrefund = \"input ILIKE '%refund%'\"\n")
    targeting = {"fractional": [["brief", 1], ["careful", 1]]}
    flag = {"variants": {"brief": "B", "careful": "C"}, "targeting": targeting}
    flags.write_text(json.dumps({"flags": {"support-prompt": flag}}))
    key = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flags)]
    learn = ["policy", *key, "--features", str(spec), "--exploration", "0.02"]
    assert CliRunner().invoke(cli, learn).exit_code == 0
    (row,) = traces.ask("SELECT version FROM policies")
    blind = values(evaluate(traces, "--arm", "careful"))
    assert blind["doubly_robust"] == pytest.approx(0.55, abs=0.08)
    candidate = values(evaluate(traces, "--version", row["version"]))
    assert candidate["doubly_robust"] == pytest.approx(0.79, abs=0.08)
    assert CliRunner().invoke(cli, ["promote", *key]).exit_code == 0
    for options in (["--version", row["version"]], ["--flags", str(flags)]):
        served = values(evaluate(traces, *options))
        assert served["doubly_robust"] == pytest.approx(candidate["doubly_robust"], abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_plots_show_values_segments_overlap_and_rewards_over_time(
    traces: "Traces", tmp_path: Path, ending: str
) -> None:
    log(traces)
    plots = [tmp_path / f"{name}{ending}" for name in ("one", "two")]
    for path in plots:
        result = evaluate(traces, "--arm", "careful", "--by", "service_name", "--plots", str(path))
        assert result.exit_code == 0, result.output
        assert f"The plots are in {path}." in result.output.replace("\n", "")
    written = plots[0].read_bytes()
    assert written.startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[ending])
    assert written == plots[1].read_bytes()
    if ending == ".svg":
        labels = {"Value of arm &apos;careful&apos;", "Overlap", "Drift", "desk-0", "dr_os"}
        text = written.decode().replace("'", "&apos;")
        assert [label for label in labels if label not in text] == []


@pytest.mark.parametrize("options", [("plots.gif",), ("plots.svg", "--model", "m")])
def test_plots_that_cannot_be_drawn_are_wrong_usage(
    traces: "Traces", options: tuple[str, ...]
) -> None:
    log(traces)
    result = evaluate(traces, "--arm", "careful", "--plots", *options)
    assert result.exit_code == 2
    assert "into a file that ends in .svg, .png, .pdf." in " ".join(result.stderr.split())


def test_history_of_the_rewards_is_recorded_by_tenths(traces: "Traces") -> None:
    from datetime import datetime, timedelta

    noon = datetime(2026, 11, 1, hour=12)  # noqa: DTZ001 - the store's UTC has no zone
    for i in range(200):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", ("brief", "careful")[i % 2], 0.5, time=noon + timedelta(minutes=i))
        traces.reward(f"r{i}", float(i // 20 if i % 2 else 0.5))
    assert evaluate(traces, "--arm", "careful").exit_code == 0
    (run,) = traces.ask("SELECT metrics FROM runs")
    metrics = json.loads(run["metrics"])
    parts = [part for part in metrics["history"] if part["arm"] == "careful"]
    assert [part["mean"] for part in parts] == list(range(10))
    assert [part["part"] for part in parts] == list(range(1, 11))
    assert [part["rollouts"] for part in parts] == [10] * 10
    assert (metrics["weights"][0], metrics["weights"][-1]) == (0.0, 2.0)


def test_nothing_named_to_evaluate_is_one_sentence(traces: "Traces") -> None:
    log(traces)
    result = evaluate(traces)
    assert result.exit_code == 2
    assert (
        "Name what to evaluate: --flags FILE, --version VERSION or --arm VARIANT." in result.stderr
    )


def test_weights_of_a_single_task_say_nothing_about_the_propensities(traces: "Traces") -> None:
    for i in range(20):
        traces.call(f"{i:02}")
        traces.arm(f"{i:02}", "brief" if i < 15 else "careful", 1 / 2)
        traces.task(f"{i:02}", "the only one")
        traces.reward(f"{i:02}", float(i % 2))
    result = evaluate(traces, "--arm", "brief", "--propensities", "trace")
    assert "its mean importance weight is 1.50" in result.output, result.output
    assert "propensities do not say" not in result.output


def test_two_policies_to_evaluate_are_wrong_usage(traces: "Traces") -> None:
    result = evaluate(traces, "--arm", "brief", "--version", "v1")
    assert result.exit_code == 2
    assert "Name one of --flags, --version and --arm" in result.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--arm", "brief", "--by", "nothing"], "--by 'nothing' does not work: "),
        (["--arm", "a", "--key", "support-prompt+support-prompt"], "names a flag twice"),
    ],
)
def test_wrong_question_is_one_sentence(traces: "Traces", options: list[str], told: str) -> None:
    log(traces)
    result = evaluate(traces, *options)
    assert (result.exit_code, told in result.stderr) == (1, True), result.output


def test_two_policies_live_at_once_are_named(traces: "Traces") -> None:
    from datetime import datetime

    for i in range(40):
        traces.call(f"r{i}")
        at = datetime(2026, 11, 1, hour=i % 20)  # noqa: DTZ001 - the store's UTC has no zone
        arm = ("brief", "careful")[i % 3 == 0]
        traces.arm(f"r{i}", arm, 0.5, policy_version=f"v{i % 2}", time=at)
        traces.reward(f"r{i}", float(i % 3 == 0))
    assert (
        "Policies v0 and v1 were live at the same time" in evaluate(traces, "--arm", "brief").output
    )
