"""A policy that sees context: learned, judged, served by rules, learned again."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.serving import flag_rules
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings

if TYPE_CHECKING:
    from conftest import Traces

ARMS = ("brief", "careful")
TEXT = """{"flags": {"support-prompt": {"state": "ENABLED",
  "variants": {"brief": "Be brief.", "careful": "Be careful."}, "defaultVariant": "brief",
  "targeting": {"fractional": [["brief", 1], ["careful", 1]]}}}}
"""
REFUND = "[features]\nrefund = \"input ILIKE '%refund%'\"\n"


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def features(tmp_path: Path) -> Path:
    path = tmp_path / "features.toml"
    path.write_text(REFUND)
    return path


def log(traces: "Traces", name: str = "r", version: str | None = None, count: int = 600) -> str:
    """'careful' is right for refunds and 'brief' for all else; on the whole they are equal."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for i in range(count):
        refund, arm = i % 2 == 0, rng.choice(ARMS)
        text = "I want a refund, please" if refund else "Where is my order?"
        messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
        traces.call(f"{name}{i}", input_messages=json.dumps(messages))
        traces.task(f"{name}{i}", f"{name}{i // 2}")
        traces.arm(f"{name}{i}", arm, None if version else 0.5, policy_version=version)
        good = rng.random() < (0.8 if (arm == "careful") == refund else 0.3)
        traces.reward(f"{name}{i}", float(good))
    return traces.store()


def learn(store: str, flags: Path, *options: str, command: str = "policy") -> Result:
    words = [command, "--store", store, "--key", "support-prompt", "--flags", str(flags), *options]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_arm_that_is_better_for_some_inputs_only_is_served_to_those(
    traces: "Traces", flags: Path, features: Path
) -> None:
    store = log(traces)
    blind = learn(store, flags)
    assert blind.exit_code == 3
    seeing = learn(store, flags, "--features", str(features), "--promote")
    assert seeing.exit_code == 0, seeing.output
    targeting = json.loads(flags.read_text())["flags"]["support-prompt"]["targeting"]
    for refund, right in ((True, "careful"), (False, "brief")):
        assert flag_rules.shares_of_cell(targeting, {"refund": refund})[right] > 0.85


def test_stock_flagd_provider_serves_the_rules(
    traces: "Traces", flags: Path, features: Path
) -> None:
    from openfeature import api
    from openfeature.contrib.provider.flagd import FlagdProvider
    from openfeature.contrib.provider.flagd.config import ResolverType
    from openfeature.evaluation_context import EvaluationContext

    learn(log(traces), flags, "--features", str(features), "--promote", "--exploration", "0.4")
    targeting = json.loads(flags.read_text())["flags"]["support-prompt"]["targeting"]
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    api.set_provider_and_wait(provider)
    try:
        client = api.get_client()
        for refund in (True, False):
            contexts = [EvaluationContext(f"{i}", {"refund": refund}) for i in range(2000)]
            served = Counter(
                client.get_string_details("support-prompt", "", context).variant
                for context in contexts
            )
            shares = flag_rules.shares_of_cell(targeting, {"refund": refund})
            chi_square = sum((served[a] - 2000 * p) ** 2 / (2000 * p) for a, p in shares.items())
            assert chi_square < 10.8  # 99.9 % quantile with one degree of freedom
    finally:
        api.shutdown()


def test_propensities_of_the_rules_come_from_the_version(
    traces: "Traces", flags: Path, features: Path
) -> None:
    store = log(traces)
    learn(store, flags, "--features", str(features), "--promote", "--exploration", "0.5")
    (row,) = traces.ask("SELECT version FROM policies")
    log(traces, name="s", version=row["version"])
    again = learn(store, flags, "--features", str(features), "--propensities", "version")
    assert "from version" in again.output
    (gate,) = traces.ask("SELECT metrics FROM runs ORDER BY started DESC LIMIT 1")
    assert json.loads(gate["metrics"])["learned_from"] > 0
    unseen = learn(store, flags)
    assert unseen.exit_code == 1
    assert "sees the feature 'refund'. Declare it in --features" in unseen.stderr


def test_contextual_policy_rolls_back_and_mixes_as_a_canary(
    traces: "Traces", flags: Path, features: Path
) -> None:
    store = log(traces)
    learn(store, flags, "--features", str(features))
    promoted = learn(store, flags, "--canary", "20%", command="promote")
    assert promoted.exit_code == 0
    assert "these shares are means over the logged inputs" in promoted.output
    targeting = json.loads(flags.read_text())["flags"]["support-prompt"]["targeting"]
    share = flag_rules.shares_of_cell(targeting, {"refund": True})["careful"]
    assert share == pytest.approx(0.8 * 0.5 + 0.2 * 0.93, abs=0.02)
    assert learn(store, flags, command="rollback").exit_code == 0
    after = json.loads(flags.read_text())["flags"]["support-prompt"]["targeting"]
    assert after == {"fractional": [["brief", 1], ["careful", 1]]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ('[features]\nx = "NULL"', "Feature 'x' is NULL for each of the "),
        ('[features]\nx = "no_such_column"', "A feature does not work:"),
        ("[other]\n", "has no features. Write a table [features]"),
        ("[features", "is not a readable TOML file"),
        (
            "[features]\nx = \"'inf'::DOUBLE\"",
            "Feature 'x' is infinite, or beyond 1e+60, for 40",
        ),
        ('[features]\nx = "1e300"', "Feature 'x' is infinite, or beyond 1e+60, for 40"),
    ],
)
def test_feature_file_that_does_not_work_is_one_sentence(
    traces: "Traces", flags: Path, features: Path, spec: str, message: str
) -> None:
    store = log(traces, count=40)
    features.write_text(spec)
    result = learn(store, flags, "--features", str(features))
    assert result.exit_code == 1
    assert message in result.stderr


def test_feature_that_knows_the_outcome_is_refused(
    traces: "Traces", flags: Path, features: Path
) -> None:
    rng = random.Random(1)  # noqa: S311 - sampling, not cryptography
    for i in range(60):
        good = rng.random() < 0.5
        messages = [{"role": "user", "parts": [{"type": "text", "content": f"solved {good}"}]}]
        traces.call(f"r{i}", input_messages=json.dumps(messages))
        traces.task(f"r{i}", f"t{i}")
        traces.arm(f"r{i}", ARMS[i % 2], 0.5)
        traces.reward(f"r{i}", float(good))
    features.write_text("[features]\nsolved = \"input LIKE '%True%'\"")
    result = learn(traces.store(), flags, "--features", str(features))
    assert result.exit_code == 1
    assert "Feature 'solved' leaks the outcome: its correlation with the reward is 1.000" in (
        result.stderr
    )


def bandit(seed: int, count: int = 1000) -> tuple[Choices, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.normal(5, 3, (count, 2))
    values[rng.random((count, 2)) < 0.1] = np.nan
    taken = rng.integers(2, size=count)
    high = np.nan_to_num(values[:, 0], nan=5) > 5
    rewards = (rng.random(count) < np.where((taken == 1) == high, 0.9, 0.2)).astype(float)
    choices = Choices(("a", "b"), taken, np.full(count, 0.5), rewards, np.arange(count))
    return choices, values


def test_linear_softmax_learns_a_contextual_bandit_with_unknown_values() -> None:
    choices, values = bandit(0)
    policy, _ = contextual.learn(choices, values, ("x", "y"), Settings())
    low, high = policy.probabilities(np.array([[0.0, 5.0], [10.0, np.nan]]))
    assert low[0] > 0.85
    assert high[1] > 0.85
    assert policy.probabilities(values).min() >= 0.05


def test_policy_survives_being_written_as_json() -> None:
    choices, values = bandit(1)
    policy, _ = contextual.learn(choices, values, ("x", "y"), Settings())
    again = contextual.from_parameters(json.loads(json.dumps(policy.as_parameters())))
    assert again.probabilities(values) == pytest.approx(policy.probabilities(values))


def test_gradient_of_the_policy_ascends_its_doubly_robust_value() -> None:
    choices, values = bandit(2)
    policy, model = contextual.learn(choices, values, ("x", "y"), Settings(exploration=0.0))
    modelled = policy.standard.apply(values) @ model.T
    even = np.full((1000, 2), 0.5)
    from otel_lightning.learner.evaluate.off_policy import METHODS

    learned, before = (
        METHODS["doubly_robust"](contextual.logged_under(choices, shares, modelled)).value
        for shares in (policy.probabilities(values), even)
    )
    assert learned > before + 0.25


@given(
    st.lists(st.sampled_from("abc"), unique=True, max_size=3),
    st.integers(1, 9999),
)
def test_rules_give_each_combination_its_own_shares(names: list[str], weight: int) -> None:
    def weights(cell: flag_rules.Cell) -> dict[str, int]:
        return {"x": weight + sum(cell.values()), "y": 1}

    targeting = flag_rules.rule(names, weights)
    assert flag_rules.features_of(targeting) == names
    for cell in flag_rules.cells(names):
        whole = weight + sum(cell.values()) + 1
        shares = flag_rules.shares_of_cell(targeting, cell)
        assert shares == pytest.approx({"x": (whole - 1) / whole, "y": 1 / whole})
