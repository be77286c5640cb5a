"""promote, rollback and policies: what is live, and how it got there."""

import json
import re
import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from support.examples import first_quick

from otel_lightning.collector.store import open_store
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.learn import learn_policy
from otel_lightning.learner.policy.request import Request
from otel_lightning.learner.policy.serving import flag_document, versions
from otel_lightning.learner.policy.serving import flag_file as files

if TYPE_CHECKING:
    from conftest import Traces

KEY = "support-prompt"
UNIFORM = {"brief": 1 / 3, "friendly": 1 / 3, "careful": 1 / 3}
TEXT = """{"flags":
  {"support-prompt": {"state": "ENABLED",
     "variants": {"brief": "Be brief.", "friendly": "Be nice.", "careful": "Be careful."},
     "defaultVariant": "brief",
     "targeting": {"fractional": [["brief", 1], ["friendly", 1], ["careful", 1]]}}}}
"""


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


def log(traces: "Traces", success: dict[str, float]) -> str:
    """Log 180 rollouts of each arm; its successes are spread evenly."""
    for arm, share in success.items():
        for i in range(180):
            rollout = f"{arm}-{i}"
            traces.call(rollout)
            traces.arm(rollout, arm, UNIFORM[arm])
            traces.reward(rollout, float((i * 37) % 100 < 100 * share))
    return traces.store()


def run(command: str, store: str, flags: Path | None = None, *options: str) -> Result:
    words = [command, "--store", store, "--key", "support-prompt", *options]
    words += ["--flags", str(flags)] if flags else []
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def served(path: Path) -> dict[str, float]:
    return flag_document.live_shares(files.read_flag_file(path, "support-prompt"), "support-prompt")


def statuses(store: str) -> list[str]:
    with open_store(store, create=False) as opened:
        return [row["status"] for row in versions.policies_of(opened, "support-prompt")]


GOOD = {"brief": 0.2, "friendly": 0.35, "careful": 0.7}


def test_candidate_is_promoted_and_rolled_back_to_the_very_bytes(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, GOOD)
    assert run("policy", store, flags).exit_code == 0
    assert statuses(store) == ["candidate"]
    promoted = run("promote", store, flags)
    assert promoted.exit_code == 0, promoted.output
    assert served(flags)["careful"] > 0.9
    assert statuses(store) == ["live"]
    assert "careful: 33.33% -> 9" in promoted.output
    assert ", as recorded." in run("policies", store).output
    back = run("rollback", store)
    assert back.exit_code == 0, back.output
    assert served(flags) == pytest.approx(UNIFORM)
    assert statuses(store) == ["retired"]
    assert "The flag as it was is live again." in back.output
    assert flags.read_text() == TEXT
    again = run("rollback", store)
    assert again.exit_code == 1
    assert "there is nothing to go back to" in again.stderr


def test_control_with_shuffled_rewards_is_never_promoted(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    # Its shuffle passes a gate that errs in 99 % of cases, as one in twenty passes the real one.
    control = Request(KEY, flags, flags, shuffle_rewards=8, alpha=0.99, promote=True)
    learned = learn_policy(store, control)
    assert learned.verdict.passed
    assert not learned.promoted
    refused = run("promote", store, flags)
    assert refused.exit_code == 3
    assert "is a control: it was learned from shuffled rewards" in refused.stderr
    assert flags.read_text() == TEXT
    assert " control " in run("policies", store).output
    assert run("policy", store, flags).exit_code == 0
    learn_policy(store, control)  # the newest one whose gate passed
    assert run("promote", store, flags).exit_code == 0
    assert served(flags)["careful"] > 0.9


LINES = """{
    "flags": {
        "support-prompt": {
            "state" : "ENABLED",
            "targeting": {
                "fractional": [
                    ["brief", 1e1],  ["friendly", 10],
                    [ "careful", 10 ]
                ]
            },
            "metadata" : { },
            "variants": {
                "brief": "Be brief.", "friendly": "Be nice.", "careful": "B\\u00e4r." },
            "defaultVariant": "brief"
        }
    }
}"""
RULED = LINES.replace(
    '"metadata" : { }', '"metadata" : {"owner":"a",\n "lightning.propensity.old":0.5}'
)
NOT_TARGETED = """{"flags": {"support-prompt": {"state": "ENABLED", "targeting": {},
\t"variants": {"friendly": "F", "brief": "B", "careful": "C"}, "defaultVariant": "brief"}}}
"""


@pytest.mark.parametrize("text", [LINES, RULED, LINES.replace("\n", "\r\n"), NOT_TARGETED])
@pytest.mark.parametrize("canaries", first_quick([1, 0]))
def test_rollback_restores_the_very_bytes_whatever_the_formatting(
    traces: "Traces", flags: Path, text: str, canaries: int
) -> None:
    flags.write_bytes(text.encode())
    store = log(traces, GOOD)
    assert run("policy", store, flags).exit_code == 0
    if canaries:
        assert run("promote", store, flags, "--canary", "20%").exit_code == 0
    assert run("promote", store, flags).exit_code == 0
    assert flags.read_bytes() != text.encode()
    for _ in range(1 + canaries):
        assert run("rollback", store).exit_code == 0
    assert flags.read_bytes() == text.encode()


def test_promotion_changes_the_numbers_where_they_are_and_leaves_their_lines(
    traces: "Traces", flags: Path
) -> None:
    flags.write_text(LINES)
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote")
    lines = flags.read_text().splitlines()
    flag = files.read_flag_file(flags, "support-prompt")["flags"]["support-prompt"]
    weights = [weight for _, weight in flag["targeting"]["fractional"]]
    assert lines[6] == f'                    ["brief", {weights[0]}],  ["friendly", {weights[1]}],'
    assert lines[7] == f'                    [ "careful", {weights[2]} ]'


def test_rollback_keeps_what_was_added_to_the_flag_since(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote")
    more = '"careful": "Be careful.", "new":  "Be new."'
    flags.write_text(flags.read_text().replace('"careful": "Be careful."', more))
    assert run("rollback", store).exit_code == 0
    assert flags.read_text() == TEXT.replace('"careful": "Be careful."', more)


def test_promoted_flag_keeps_every_other_byte(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote")
    text = flags.read_text()
    start = TEXT.index('"targeting"')
    assert text.startswith(TEXT[:start])
    assert text.endswith("}}}\n")


def pasted(message: str) -> Result:
    """Give the command that ends a message, as somebody does who pastes it."""
    program, *words = shlex.split(message.strip().split("with: ")[-1])
    assert program == "lightning-learn"
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_every_next_command_works_when_it_is_pasted(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = str(tmp_path / "my traces.duckdb")
    Path(log(traces, GOOD)).rename(store)
    learned = pasted(run("promote", store, flags).stderr)
    assert learned.exit_code == 0, learned.output
    promoted = pasted(learned.output)
    assert "is live in" in promoted.output
    learned = pasted(run("promote", store, flags).stderr)
    assert "Learned from" in learned.output
    flags.write_text(TEXT.replace('["brief", 1]', '["brief", 7]'))
    assert "changed by hand" in pasted(run("rollback", store).stderr).output


def test_next_command_names_a_flag_file_that_exists(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, GOOD)
    learned = run("policy", store, flags, "--output", str(tmp_path / "new.json"))
    assert "is live in" in pasted(learned.output).output


def test_dry_run_shows_the_change_and_changes_nothing(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags)
    result = run("promote", store, flags, "--dry-run")
    assert "careful: 33.33% -> 9" in result.output
    assert "would be live in" in result.output
    assert "Nothing was written" in result.output
    assert flags.read_text() == TEXT
    assert statuses(store) == ["candidate"]
    run("promote", store, flags)
    after = flags.read_text()
    back = run("rollback", store, None, "--dry-run").output
    assert "33.33%" in back
    assert "The flag as it was would be live again. Nothing was written" in back
    assert flags.read_text() == after


def test_canary_is_a_mixture_with_what_is_live(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags)
    result = run("promote", store, flags, "--canary", "10%")
    assert result.exit_code == 0, result.output
    assert "@0.1 is live in" in result.output
    assert "for 10 % of the traffic." in result.output
    assert served(flags)["careful"] == pytest.approx(0.1 * 0.93 + 0.9 / 3, abs=0.01)
    assert statuses(store) == ["canary"]
    metadata = json.loads(flags.read_text())["flags"]["support-prompt"]["metadata"]
    assert metadata["lightning.propensity.careful"] == served(flags)["careful"]
    assert run("promote", store, flags).exit_code == 0
    assert served(flags)["careful"] > 0.9
    assert statuses(store) == ["live"]
    run("rollback", store)
    assert statuses(store) == ["canary"]


def test_file_is_rolled_back_by_its_own_promotions_and_not_by_those_of_another_file(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, GOOD)
    trial = tmp_path / "trial.json"
    trial.write_text(TEXT)
    run("policy", store, flags)
    assert run("promote", store, flags, "--canary", "10%").exit_code == 0
    assert run("promote", store, trial, "--canary", "50%").exit_code == 0
    assert ", as recorded." in run("policies", store, flags).output
    back = run("rollback", store, flags)
    assert back.exit_code == 0, back.output
    assert flags.read_text() == TEXT
    assert served(trial)["careful"] > 0.6
    again = run("rollback", store, flags)
    assert (again.exit_code, "Each promotion of flag" in again.stderr) == (1, True)
    assert run("rollback", store, trial).exit_code == 0
    assert trial.read_text() == TEXT


def _after(output: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): \S+ -> (\S+)", output))


def test_every_command_tells_the_same_shares(traces: "Traces", flags: Path) -> None:
    """Thirds and such parts make shares that whole weights cannot have: some get a unit more."""
    store = log(traces, GOOD)
    learned = run("policy", store, flags).output
    rows = [line.split("│") for line in learned.splitlines() if line.startswith("│")]
    by_table = {row[1].strip(): row[-2].strip() for row in rows}
    assert by_table == _after(run("promote", store, flags, "--dry-run").output)
    for share in ("7%", "10%", "25%", "33%", "50%"):
        foretold = _after(run("promote", store, flags, "--canary", share, "--dry-run").output)
        told = _after(run("promote", store, flags, "--canary", share).output)
        in_file = {arm: f"{part:.2%}" for arm, part in served(flags).items()}
        before = run("rollback", store, flags, "--dry-run").output
        assert foretold == told == in_file
        assert dict(re.findall(r"(\w+): (\S+) -> ", before)) == in_file


def test_refused_policy_is_not_promoted_and_says_what_would_pass(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, {"brief": 0.4, "friendly": 0.4, "careful": 0.45})
    learned = run("policy", store, flags)
    assert learned.exit_code == 3
    _, _, would_pass = learned.stderr.partition("To pass: ")
    assert "more held-out tasks" in would_pass
    result = run("promote", store, flags)
    assert result.exit_code == 3
    assert "The gate refused policy" in result.stderr
    assert result.stderr.endswith(f" To pass: {would_pass}")
    assert result.stderr.count("\n") == 1
    assert flags.read_text() == TEXT
    assert " refused " in run("policies", store).output


def test_policy_that_was_judged_against_another_live_one_is_refused(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags)
    flags.write_text(TEXT.replace('["careful", 1]', '["careful", 50]'))
    result = run("promote", store, flags)
    assert result.exit_code == 3
    assert "was judged against another live policy" in result.stderr


def test_file_that_was_restored_by_hand_is_noticed(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote")
    flags.write_text(TEXT)
    assert "an older state that was restored by hand" in run("policies", store).output
    flags.write_text(TEXT.replace('["careful", 1]', '["careful", 7]'))
    assert "but changed by hand" in run("policies", store).output
    back = run("rollback", store)
    assert back.exit_code == 1
    assert "somebody changed it" in back.stderr


def test_rollback_of_a_file_that_was_restored_by_hand_says_so_and_records_it(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote")
    flags.write_text(TEXT)
    back = run("rollback", store)
    assert back.exit_code == 0
    assert "The flag as it was is live already: the file was restored by hand, or" in back.output
    assert flags.read_text() == TEXT
    assert ", as recorded." in run("policies", store).output
    assert statuses(store) == ["retired"]


def test_second_policy_names_the_first_as_its_parent(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote", "--exploration", "0.5")
    run("policy", store, flags, "--promote", "--exploration", "0.05")
    with open_store(store, create=False) as opened:
        first, second = versions.policies_of(opened, "support-prompt")
        changes = versions.promotions_of(opened, "support-prompt")
    assert (first["status"], second["status"]) == ("retired", "live")
    assert second["parent"] == first["version"]
    assert second["data_fingerprint"] == first["data_fingerprint"]
    assert [change["action"] for change in changes] == ["promote", "promote"]


def test_candidate_leaves_the_live_policy_live(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags, "--promote", "--exploration", "0.5")
    run("policy", store, flags)
    assert statuses(store) == ["live", "candidate"]


def test_learning_twice_from_the_same_data_gives_the_same_policy(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, GOOD)
    run("policy", store, flags)
    run("policy", store, flags)
    with open_store(store, create=False) as opened:
        first, second = versions.policies_of(opened, "support-prompt")
    assert first["arms"] == second["arms"]
    assert first["data_fingerprint"] == second["data_fingerprint"]


@pytest.mark.parametrize("share", ["0%", "100%", "ten", "1.5"])
def test_canary_that_is_no_share_is_wrong_usage(traces: "Traces", flags: Path, share: str) -> None:
    store = log(traces, GOOD)
    assert run("promote", store, flags, "--canary", share).exit_code == 2


def test_promoting_without_a_policy_says_how_to_learn_one(traces: "Traces", flags: Path) -> None:
    store = log(traces, GOOD)
    result = run("promote", store, flags)
    assert result.exit_code == 1
    assert "The store has no policy for flag 'support-prompt'" in result.stderr
    run("policy", store, flags)
    unknown = run("promote", store, flags, "--version", "v0")
    assert "There is no policy 'v0' for flag" in unknown.stderr


def test_served_frequencies_match_the_canary(traces: "Traces", flags: Path) -> None:
    """Chi-square of 3,000 evaluations by the stock flagd provider against the propensities."""
    from openfeature import api
    from openfeature.contrib.provider.flagd import FlagdProvider
    from openfeature.contrib.provider.flagd.config import ResolverType
    from openfeature.evaluation_context import EvaluationContext

    store = log(traces, GOOD)
    run("policy", store, flags)
    run("promote", store, flags, "--canary", "0.4")
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    api.set_provider_and_wait(provider)
    try:
        client = api.get_client()
        answers = [
            client.get_string_details("support-prompt", "", EvaluationContext(f"ticket-{i}"))
            for i in range(3000)
        ]
    finally:
        api.shutdown()
    counts = Counter(answer.variant for answer in answers)
    metadata = answers[0].flag_metadata
    chi_square = sum(
        (counts[arm] - 3000 * metadata[f"lightning.propensity.{arm}"]) ** 2
        / (3000 * metadata[f"lightning.propensity.{arm}"])
        for arm in UNIFORM
    )
    assert chi_square < 13.8  # 99.9 % quantile with two degrees of freedom


def test_promotion_whose_file_cannot_be_replaced_leaves_no_record(
    traces: "Traces", flags: Path
) -> None:
    store = log(traces, GOOD)
    assert run("policy", store, flags).exit_code == 0
    seen = files.read_with_text(flags, "support-prompt")
    before = traces.ask("SELECT version, status FROM policies")
    row = {
        "key": "support-prompt",
        "version": before[0]["version"],
        "action": "promote",
        "flags": str(flags),
        "time": datetime(2026, 11, 1),  # noqa: DTZ001 - the store's UTC has no zone
    }

    def promote_while_somebody_edits() -> None:
        with (
            open_store(store, create=False) as opened,
            versions.promotion_recorded(opened, row, "live"),
            files.replacing(flags, "new", seen),
        ):
            assert versions.policies_of(opened)[0]["status"] == "live"
            flags.write_text(TEXT + " ")

    with pytest.raises(files.ChangedError):
        promote_while_somebody_edits()
    assert traces.ask("SELECT version, status FROM policies") == before
    assert traces.ask("SELECT * FROM promotions") == []


def test_canary_smaller_than_the_unit_of_a_weight_is_wrong_usage(
    traces: "Traces", flags: Path
) -> None:
    """It would be recorded as live although nothing of it is served."""
    store = log(traces, GOOD)
    assert run("policy", store, flags).exit_code == 0
    result = run("promote", store, flags, "--canary", "0.001%")
    assert result.exit_code == 2
    assert "is not at least 0.01% and below 100%" in result.stderr
    assert flags.read_text() == TEXT
