"""Policies that flagd's rules cannot express: our OpenFeature provider serves them."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.provider import AbstractProvider

from otel_lightning.instrumentation.provider import LightningProvider, probabilities
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings

if TYPE_CHECKING:
    from conftest import Traces

ARMS = ("brief", "careful")
KEY = "support-prompt"
TEXT = """{"flags": {"support-prompt": {"state": "ENABLED",
  "variants": {"brief": "Be brief.", "careful": "Be careful."}, "defaultVariant": "brief",
  "targeting": {"fractional": [["brief", 1], ["careful", 1]]},
  "metadata": {"lightning.propensity.brief": 0.5, "lightning.propensity.careful": 0.5}},
 "plain": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off"},
 "ruled": {"state": "ENABLED", "variants": {"x": 1, "y": 2}, "defaultVariant": "x", "targeting":
  {"if": [{"var": "vip"}, {"fractional": [["x", 1], ["y", 3]]}, {"fractional": [["x", 1]]}]}},
 "away": {"state": "DISABLED", "variants": {"on": true}, "defaultVariant": "on"}}}
"""


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def features(tmp_path: Path) -> Path:
    path = tmp_path / "features.toml"
    path.write_text('[features]\nlength = "length(input)"\n')
    return path


@pytest.fixture(autouse=True)
def shut_down() -> Iterator[None]:
    yield
    api.shutdown()
    api.clear_providers()


def client(provider: AbstractProvider) -> Any:
    api.set_provider_and_wait(provider)
    return api.get_client()


def log(traces: "Traces", serve: Any = None, name: str = "r", count: int = 1200) -> str:
    """'careful' is right for long inputs. `serve` chooses the arm, else chance does."""
    rng = random.Random(name)  # noqa: S311 - sampling, not cryptography
    for i in range(count):
        text, rollout = "x" * rng.randrange(100), f"{name}{i}"
        arm, propensity, version = rng.choice(ARMS), 0.5, None
        if serve is not None:
            told = serve.get_string_details(
                KEY, "", EvaluationContext(rollout, {"length": len(text)})
            )
            arm, version = told.variant, told.flag_metadata["lightning.policy.version"]
            propensity = told.flag_metadata[f"lightning.propensity.{arm}"]
        messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
        traces.call(rollout, input_messages=json.dumps(messages))
        traces.task(rollout, rollout)
        traces.arm(rollout, arm, propensity, policy_version=version)
        good = rng.random() < (0.85 if (arm == "careful") == (len(text) > 50) else 0.15)
        traces.reward(rollout, float(good))
    return traces.store()


def run(command: str, store: str, flags: Path, *options: str) -> Result:
    words = [command, "--store", store, "--key", KEY, "--flags", str(flags), *options]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def promoted(traces: "Traces", flags: Path, features: Path, *options: str) -> str:
    store = log(traces)
    learned = run("policy", store, flags, "--features", str(features), "--exploration", "0.2")
    assert learned.exit_code == 0, learned.output
    result = run("promote", store, flags, *options)
    assert result.exit_code == 0, result.output
    assert "serve it with our OpenFeature provider" in result.output
    return store


def test_provider_serves_the_shares_of_each_input_and_tells_their_propensity(
    traces: "Traces", flags: Path, features: Path
) -> None:
    promoted(traces, flags, features)
    ours = client(LightningProvider(flags))
    for length, right in ((5, "brief"), (95, "careful")):
        contexts = [EvaluationContext(f"t{i}", {"length": length}) for i in range(3000)]
        answers = [ours.get_string_details(KEY, "", context) for context in contexts]
        served = Counter(answer.variant for answer in answers)
        told = answers[0].flag_metadata
        assert told[f"lightning.propensity.{right}"] > 0.8
        expected = {arm: 3000 * told[f"lightning.propensity.{arm}"] for arm in ARMS}
        chi_square = sum((served[arm] - n) ** 2 / n for arm, n in expected.items())
        assert chi_square < 15.1  # 99.99 % quantile with one degree of freedom


def test_other_providers_go_on_serving_what_they_served(
    traces: "Traces", flags: Path, features: Path
) -> None:
    promoted(traces, flags, features)
    stock = client(
        FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    )
    answers = [stock.get_string_details(KEY, "", EvaluationContext(f"t{i}")) for i in range(600)]
    assert answers[0].flag_metadata["lightning.propensity.brief"] == 0.5
    assert "lightning.policy.version" not in answers[0].flag_metadata
    assert 220 < Counter(answer.variant for answer in answers)["brief"] < 380


@pytest.mark.slow
def test_next_round_learns_from_what_the_provider_served(
    traces: "Traces", flags: Path, features: Path
) -> None:
    store = promoted(traces, flags, features)
    log(traces, serve=client(LightningProvider(flags)), name="s", count=400)
    (row,) = traces.ask("SELECT version FROM policies")
    again = run("policy", store, flags, "--features", str(features))
    assert "1,600 from trace" in again.output, again.output
    assert "the importance weights average" not in again.output + again.stderr
    for options in (["--flags", str(flags)], ["--version", row["version"]]):
        words = ["evaluate", "--store", store, "--key", KEY, *options]
        result = CliRunner().invoke(cli, words, catch_exceptions=False, env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        robust = next(line for line in result.output.splitlines() if "doubly_robust" in line)
        assert float(robust.split("│")[2]) > 0.65
    unseen = run("policy", store, flags)
    assert "sees the feature 'length'. Declare it in --features" in unseen.stderr
    assert ", as recorded." in run("policies", store, flags).output
    assert run("rollback", store, flags).exit_code == 0
    assert json.loads(flags.read_text()) == json.loads(TEXT)


def test_canary_mixes_with_the_shares_of_the_live_policy(
    traces: "Traces", flags: Path, features: Path
) -> None:
    store = promoted(traces, flags, features, "--canary", "20%")
    ours = client(LightningProvider(flags))
    told = ours.get_string_details(KEY, "", EvaluationContext("t", {"length": 95}))
    assert 0.55 < told.flag_metadata["lightning.propensity.careful"] < 0.8 * 0.5 + 0.2 * 0.95
    assert told.flag_metadata["lightning.policy.version"].endswith("@0.2")
    assert run("promote", store, flags).exit_code == 0
    told = ours.get_string_details(KEY, "", EvaluationContext("t", {"length": 95}))
    assert told.flag_metadata["lightning.propensity.careful"] > 0.8


def test_provider_computes_what_the_learner_computes() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(5, 3, (500, 2))
    taken = rng.integers(3, size=500)
    rewards = (rng.random(500) < 0.3 + 0.1 * taken * (values[:, 0] > 5)).astype(float)
    choices = Choices(("a", "b", "c"), taken, np.full(500, 1 / 3), rewards, np.arange(500))
    policy, _ = contextual.learn(choices, values, ("x", "y"), Settings())
    parameters = json.loads(json.dumps(policy.as_parameters()))
    for x, y in values[:20]:
        (expected,) = policy.probabilities(np.array([[x, y]]))
        served = probabilities(parameters, {"x": x, "y": y})
        assert [served[arm] for arm in "abc"] == pytest.approx(expected)
    (unknown,) = policy.probabilities(np.array([[np.nan, 5.0]]))
    for given in ({"y": 5.0}, {"x": None, "y": 5.0}, {"x": "long", "y": 5.0}):
        served = probabilities(parameters, given)
        assert [served[arm] for arm in "abc"] == pytest.approx(unknown)


def test_draws_without_a_targeting_key_do_not_depend_on_the_agents_seed(flags: Path) -> None:
    ours = client(LightningProvider(flags))
    drawn = Counter[str | None]()
    for _ in range(200):
        random.seed(7)  # an agent that wants to repeat itself
        drawn[ours.get_string_details(KEY, "").variant] += 1
    assert drawn.total() == 200
    assert 50 < drawn["brief"] < 150  # of 200 fair draws, with a probability above 1 - 1e-11


def test_with_a_secret_nobody_can_name_a_key_that_draws_an_arm(
    flags: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = client(LightningProvider(flags))

    def drawn(keys: list[str]) -> list[str]:
        return [ours.get_string_details(KEY, "", EvaluationContext(one)).variant for one in keys]

    tried = [f"tried {number}" for number in range(400)]
    chosen = [one for one, arm in zip(tried, drawn(tried), strict=True) if arm == "brief"]
    monkeypatch.setenv("LIGHTNING_POLICY_SECRET", "of this agent")
    with_secret = drawn(chosen)
    assert 0.3 < with_secret.count("brief") / len(chosen) < 0.7  # half of them expected
    assert drawn(chosen) == with_secret


def test_flags_without_such_a_policy_are_served_by_their_targeting(flags: Path) -> None:
    ours = client(LightningProvider(flags))
    assert ours.get_boolean_details("plain", default_value=True).value is False
    assert ours.get_boolean_details("away", default_value=False).reason == "DISABLED"
    drawn = [
        ours.get_integer_details("ruled", 0, EvaluationContext(f"t{i}", {"vip": True})).value
        for i in range(400)
    ]
    assert 240 < drawn.count(2) < 360
    others = {ours.get_integer_value("ruled", 0, EvaluationContext(f"t{i}")) for i in range(50)}
    assert others == {1}
    same = {ours.get_integer_value("ruled", 0, EvaluationContext("t", {"vip": True}))} | {
        ours.get_integer_value("ruled", 0, EvaluationContext("t", {"vip": True}))
    }
    assert len(same) == 1


@pytest.mark.parametrize(
    ("key", "text", "error"),
    [
        ("gone", None, "FLAG_NOT_FOUND"),
        (KEY, "not json", "PARSE_ERROR"),
        (KEY, TEXT.replace('"Be brief."', "1").replace('"Be careful."', "2"), "TYPE_MISMATCH"),
        (
            KEY,
            TEXT.replace('"fractional": [["brief", 1]', '"sem_ver": [["brief", 1]'),
            "PARSE_ERROR",
        ),
    ],
)
def test_what_cannot_be_served_gives_the_default_and_an_error(
    flags: Path, key: str, text: str | None, error: str
) -> None:
    if text is not None:
        flags.write_text(text)
    told = client(LightningProvider(flags)).get_string_details(key, "default")
    assert told.value == "default"
    assert told.error_code == error


def test_changed_file_is_read_again(flags: Path) -> None:
    ours = client(LightningProvider(flags))
    assert ours.get_boolean_value("plain", default_value=True) is False
    flags.write_text(TEXT.replace('"defaultVariant": "off"', '"defaultVariant": "on"'))
    assert ours.get_boolean_value("plain", default_value=False) is True
