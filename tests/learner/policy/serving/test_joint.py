"""Several flags learned as one: an arm is a combination of their variants."""

import json
import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext

from otel_lightning.instrumentation import policy as own_policy
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.instrumentation.provider import LightningProvider
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.serving import flag_document, flag_file

if TYPE_CHECKING:
    from conftest import Traces

KEY = "prompt+model"
PARTS = {"prompt": ("brief", "long"), "model": ("small", "large")}
RIGHT = {"brief+large", "long+small"}
"""Neither prompt nor model is better: only their combination counts."""


def flag(variants: tuple[str, ...], **more: Any) -> dict[str, Any]:
    values = {name: {"temperature": number} for number, name in enumerate(variants)}
    return {"state": "ENABLED", "variants": values, "defaultVariant": variants[0], **more}


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    both = {"fractional": [["brief", 1], ["long", 1]]}
    document = {
        "prompt": flag(PARTS["prompt"], targeting=both),
        "model": flag(PARTS["model"], targeting={"fractional": [["small", 1], ["large", 1]]}),
    }
    path.write_text(json.dumps({"flags": document}, indent=2))
    return path


def log(
    traces: "Traces",
    name: str = "r",
    version: str | None = None,
    count: int = 800,
    right: Collection[str] = frozenset(RIGHT),
) -> str:
    rng = random.Random(name)  # noqa: S311 - sampling, not cryptography
    for i in range(count):
        rollout = f"{name}{i}"
        chosen = {key: rng.choice(variants) for key, variants in PARTS.items()}
        traces.call(rollout)
        for key, variant in chosen.items():
            traces.arm(rollout, variant, 0.5, key=key, policy_version=version)
        good = rng.random() < (0.8 if "+".join(chosen.values()) in right else 0.3)
        traces.reward(rollout, float(good))
    return traces.store()


def run(command: str, store: str, flags: Path, *options: str, key: str = KEY) -> Result:
    words = [command, "--store", store, "--key", key, "--flags", str(flags), *options]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_combinations_are_learned_where_no_flag_alone_tells(traces: "Traces", flags: Path) -> None:
    store = log(traces)
    before = flags.read_text()
    assert run("policy", store, flags, key="prompt").exit_code == 3
    joint = run("policy", store, flags, "--promote")
    assert joint.exit_code == 0, joint.output
    shares = flag_document.live_shares(flag_file.read_flag_file(flags, KEY), KEY)
    assert sum(shares[arm] for arm in RIGHT) > 0.9
    assert KEY not in json.loads(flags.read_text())["flags"]
    assert ", as recorded." in run("policies", store, flags).output
    assert run("rollback", store, flags).exit_code == 0
    for key, now in json.loads(flags.read_text())["flags"].items():
        assert now == json.loads(before)["flags"][key]


def test_a_later_change_of_one_of_its_flags_is_no_change_by_hand(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, right={"long+small", "long+large"})
    for words in (
        ("policy", KEY, "--promote"),
        ("rollback", KEY),
        ("policy", "prompt", "--promote"),
    ):
        command, key, *options = words
        result = run(command, store, flags, *options, key=key)
        assert result.exit_code == 0, result.output
    output = " ".join(run("policies", store, flags).output.split())
    assert "'prompt' was changed, which has a flag in common: promote of policy" in output
    assert "by hand" not in output
    document = json.loads(flags.read_text())
    document["flags"]["prompt"]["targeting"]["fractional"][0][1] += 1
    flags.write_text(json.dumps(document))
    assert "but changed by hand" in " ".join(run("policies", store, flags).output.split())


def served(traces: "Traces", flags: Path, count: int = 800) -> str:
    """Log rollouts of the joint policy that is live; a variant looks as good as its companion."""
    rng = random.Random(7)  # noqa: S311 - sampling, not cryptography
    shares = flag_document.live_shares(flag_file.read_flag_file(flags, KEY), KEY)
    version = json.loads(flags.read_text())["flags"]["prompt"]["metadata"][POLICY_VERSION]
    for i in range(count):
        (arm,) = rng.choices(list(shares), shares.values())
        traces.call(f"s{i}")
        for key, variant in zip(PARTS, arm.split("+"), strict=True):
            parts = zip(shares, shares.values(), strict=True)
            marginal = sum(p for name, p in parts if variant in name.split("+"))
            traces.arm(f"s{i}", variant, marginal, key=key, policy_version=version)
        traces.reward(f"s{i}", float(rng.random() < WORTH[arm]))
    return traces.store()


WORTH = {"brief+large": 0.9, "long+small": 0.7, "brief+small": 0.1, "long+large": 0.1}


def test_flag_that_is_drawn_with_another_is_not_changed_alone(
    traces: "Traces", flags: Path
) -> None:
    """Alone, 'brief' looks better, because of the model that it is drawn with."""
    store = log(traces)
    candidate = run("policy", store, flags, "--kl-weight", "1")
    assert candidate.exit_code == 0
    assert run("promote", store, flags).exit_code == 0
    served(traces, flags)
    before = flags.read_text()
    for command in ("policy", "promote"):
        refused = run(command, store, flags, key="prompt")
        assert refused.exit_code == 1
        assert "is drawn together with the others of 'prompt+model'" in refused.stderr
        undo = f"lightning-learn rollback --store {store} --key prompt+model"
        assert refused.stderr.strip().endswith(undo)
    assert flags.read_text() == before
    assert run("rollback", store, flags).exit_code == 0
    # What the joint policy served teaches nothing of one flag alone.
    again = run("policy", store, flags, key="prompt")
    assert again.exit_code == 3, again.output
    assert "800 choices left out: a policy of several flags drew this one" in again.output


def statuses(traces: "Traces") -> dict[str, str]:
    rows = traces.ask("SELECT key, status FROM policies WHERE status <> 'candidate'")
    return {row["key"]: row["status"] for row in rows}


def test_joint_policy_over_that_of_one_flag_and_back(traces: "Traces", flags: Path) -> None:
    store = log(traces, right={"long+small"}, count=2400)
    before = flags.read_text()
    assert run("policy", store, flags, "--promote", key="prompt").exit_code == 0
    alone = flags.read_text()
    assert statuses(traces) == {"prompt": "live"}
    assert run("policy", store, flags, "--exploration", "0.01").exit_code == 0
    assert run("promote", store, flags).exit_code == 0
    assert statuses(traces) == {"prompt": "retired", KEY: "live"}
    early = run("rollback", store, flags, key="prompt")
    assert early.exit_code == 1
    assert f"'{KEY}' was changed, which has a flag in common" in early.stderr
    assert f"Take that back first: lightning-learn rollback --store {store} --key {KEY}" in (
        early.stderr
    )
    assert run("rollback", store, flags).exit_code == 0
    assert flags.read_text() == alone
    assert statuses(traces) == {"prompt": "live", KEY: "retired"}
    assert run("rollback", store, flags, key="prompt").exit_code == 0
    assert flags.read_text() == before


def test_every_provider_draws_one_combination_for_both_flags(
    traces: "Traces", flags: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("policy", log(traces), flags, "--promote", "--exploration", "0.4")
    expected = flag_document.live_shares(flag_file.read_flag_file(flags, KEY), KEY)
    stock = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    drawn: dict[str, Counter[str]] = {}
    try:
        for name, provider in (("flagd", stock), ("ours", LightningProvider(flags))):
            api.set_provider_and_wait(provider)
            client, drawn[name] = api.get_client(), Counter()
            for i in range(3000):
                told = [
                    client.get_object_details(key, {}, EvaluationContext(f"ticket-{i}"))
                    for key in PARTS
                ]
                drawn[name]["+".join(str(answer.variant) for answer in told)] += 1
    finally:
        api.shutdown()
        api.clear_providers()
    monkeypatch.setenv("LIGHTNING_POLICY", str(flags))
    read = own_policy._flags(str(flags), 0)
    drawn["variable"] = Counter(
        "+".join(own_policy._draw(flag, f"rollout-{i}") for flag in read) for i in range(3000)
    )
    for name, counts in drawn.items():
        chi_square = sum((counts[a] - 3000 * p) ** 2 / (3000 * p) for a, p in expected.items())
        assert chi_square < 21.1, name  # 99.99 % quantile with three degrees of freedom
    for key, shares in (("prompt", {"brief": 0.0, "long": 0.0}), ("model", {})):
        for arm, share in expected.items():
            variant = arm.split("+")[list(PARTS).index(key)]
            shares[variant] = shares.get(variant, 0.0) + share
        metadata = json.loads(flags.read_text())["flags"][key]["metadata"]
        for variant, share in shares.items():
            assert metadata[f"lightning.propensity.{variant}"] == pytest.approx(share)


def test_propensity_of_a_combination_comes_from_the_version(traces: "Traces", flags: Path) -> None:
    store = log(traces)
    run("policy", store, flags, "--promote", "--exploration", "0.6")
    (row,) = traces.ask("SELECT version, arms FROM policies")
    shares = json.loads(row["arms"])
    rng = random.Random(1)  # noqa: S311 - sampling, not cryptography
    for i in range(300):
        (arm,) = rng.choices(list(shares), shares.values())
        traces.call(f"s{i}")
        for key, variant in zip(PARTS, arm.split("+"), strict=True):
            traces.arm(f"s{i}", variant, 0.5, key=key, policy_version=row["version"])
        traces.reward(f"s{i}", float(arm in RIGHT))
    traces.store()
    again = run("policy", store, flags)
    assert "800 from trace, 300 from version" in again.output
    assert "the importance weights average" not in again.output + again.stderr
    words = ["evaluate", "--store", store, "--key", KEY, "--arm", "brief+large"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output


RIGHT_FOR = {True: "brief+large", False: "long+small"}
"""The best combination for inputs with and without a refund."""


def log_in_context(traces: "Traces", arms: dict[bool, dict[str, float]], count: int) -> str:
    """Log rollouts whose combinations are drawn from these shares, for each kind of input."""
    rng = random.Random(count)  # noqa: S311 - sampling, not cryptography
    version = next((row["version"] for row in traces.ask("SELECT version FROM policies")), None)
    for i in range(count):
        rollout, refund = f"{version}{i}", i % 2 == 0
        text = "I want a refund" if refund else "Where is my order?"
        messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
        traces.call(rollout, input_messages=json.dumps(messages))
        traces.task(rollout, f"t{version}{i // 2}")
        (arm,) = rng.choices(list(arms[refund]), arms[refund].values())
        for key, variant in zip(PARTS, arm.split("+"), strict=True):
            traces.arm(rollout, variant, None if version else 0.5, key=key, policy_version=version)
        good = rng.random() < (0.9 if arm == RIGHT_FOR[refund] else 0.3)
        traces.reward(rollout, float(good))
    return traces.store()


@pytest.mark.slow
def test_combinations_are_learned_for_each_kind_of_input(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    even = {f"{prompt}+{model}": 0.25 for prompt in PARTS["prompt"] for model in PARTS["model"]}
    traces.store()
    store = log_in_context(traces, {True: even, False: even}, 1600)
    spec = tmp_path / "features.toml"
    spec.write_text("[features]\nrefund = \"input ILIKE '%refund%'\"\n")
    features = ("--features", str(spec), "--exploration", "0.2")
    learned = run("policy", store, flags, *features, "--promote")
    assert learned.exit_code == 0, learned.output + learned.stderr
    stock = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    served: dict[bool, dict[str, float]] = {True: {}, False: {}}
    try:
        api.set_provider_and_wait(stock)
        client = api.get_client()
        for i in range(2000):
            context = EvaluationContext(f"ticket-{i}", {"refund": i % 2 == 0})
            answers = [client.get_object_details(key, {}, context) for key in PARTS]
            arm = "+".join(str(answer.variant) for answer in answers)
            served[i % 2 == 0][arm] = served[i % 2 == 0].get(arm, 0.0) + 0.001
    finally:
        api.shutdown()
        api.clear_providers()
    for refund, shares in served.items():
        assert shares[RIGHT_FOR[refund]] > 0.7
        assert set(shares) == set(even)
    (row,) = traces.ask("SELECT version FROM policies")
    words = ["evaluate", "--store", store, "--key", KEY]
    for named in (["--version", row["version"]], ["--flags", str(flags)]):
        result = CliRunner().invoke(cli, [*words, *named], catch_exceptions=False)
        assert result.exit_code == 0, result.output + result.stderr
        (value,) = (line for line in result.output.splitlines() if "doubly_robust" in line)
        assert 0.7 < float(value.split("│")[2]) < 0.9
    # The next round takes the propensity of each combination from the rules that were served.
    log_in_context(traces, served, 400)
    again = run("policy", store, flags, *features)
    assert "1,600 from trace, 400 from version" in again.output
    assert "the importance weights average" not in again.output + again.stderr


def test_key_of_which_a_part_is_missing_is_one_sentence(traces: "Traces", flags: Path) -> None:
    result = run("policy", log(traces), flags, key="prompt+tools")
    assert result.exit_code == 1
    assert "has no flag 'prompt+tools'. Its flags: model, prompt." in result.stderr


def test_variant_with_a_plus_is_refused(traces: "Traces", flags: Path) -> None:
    flags.write_text(flags.read_text().replace('"large"', '"x+large"'))
    result = run("policy", log(traces), flags)
    assert result.exit_code == 1
    assert "Variant 'x+large' has a '+', so it cannot be learned jointly" in result.stderr
