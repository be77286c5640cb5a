"""`lightning-learn report`: one file that says what a run found, and why to doubt it."""

import base64
import hashlib
import json
import re
import resource
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.browser import CHROMIUM, chromium

from otel_lightning.collector.store import open_store
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.learn import learn_policy
from otel_lightning.learner.policy.request import Request
from otel_lightning.learner.report.doubts import correlations, rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Traces

ARMS = ("brief", "careful", "friendly")
PAYLOAD = "<img src=x onerror=alert(1)>\x1b[2J"
A4_WIDTH = 680
"""CSS pixels of a sheet between its margins of 15 mm."""
CUT = """
    [...document.querySelectorAll("table, svg, pre, td, p, h1, h2, h3")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => one.outerHTML.slice(0, 100))
"""
FOLDED = """
    [...document.querySelectorAll("details > :not(summary)")]
        .filter((one) => !one.checkVisibility({ contentVisibilityAuto: true }))
        .map((one) => one.outerHTML.slice(0, 100))
"""
FLAG = {
    "state": "ENABLED",
    "variants": {arm: f"Be {arm}." for arm in ARMS},
    "defaultVariant": "brief",
    "targeting": {"fractional": [[arm, 1] for arm in ARMS]},
}


class Page(HTMLParser):
    """What a report consists of; every element must end."""

    EMPTY = frozenset({"meta"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.attributes: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.elements: set[str] = set()
        self.text, self._open = "", list[str]()
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.ids.update(value for name, value in attrs if name == "id" and value)
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.handle_endtag(tag)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {"support-prompt": FLAG}}))
    return tmp_path / "flags.json"


def log(traces: "Traces", success: dict[str, float]) -> str:
    """Log 150 rollouts of each arm over 50 tasks; an arm's successes are spread evenly."""
    for number, (arm, share) in enumerate(success.items()):
        for i in range(150):
            rollout = f"{arm}-{i}"
            said = [{"role": "user", "parts": [{"type": "text", "content": PAYLOAD}]}]
            tokens = 10 + (i * 7 + number) % 30
            traces.call(rollout, input_messages=json.dumps(said), output_tokens=tokens)
            traces.arm(rollout, arm, 1 / 3)
            traces.task(rollout, f"task {i % 50}")
            traces.reward(rollout, float((i * 37) % 100 < 100 * share))
    return traces.store()


def learn(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words], catch_exceptions=False)


def reported(store: str, path: Path, *options: str) -> tuple[Page, str]:
    result = learn("report", "--store", store, "--output", str(path), *options)
    assert result.exit_code == 0, result.output
    return Page(path.read_text()), path.read_text()


def policy(store: str, flags: Path, *more: str) -> Result:
    learn("transitions", "--store", store)
    return policy_alone(store, flags, *more)


def policy_alone(store: str, flags: Path, *more: str) -> Result:
    """Learn a policy without building transitions, which it does not read."""
    words = ("--key", "support-prompt", "--flags", str(flags), "--reward-range", "0,1", *more)
    return learn("policy", "--store", store, "--held-out", "0.5", *words)


@pytest.fixture(scope="module")
def promising(
    new_traces: "Callable[[], Traces]", tmp_path_factory: pytest.TempPathFactory
) -> "tuple[Traces, Result]":
    """A store with a policy that passed the gate, and what the command said."""
    traces, flags = new_traces(), tmp_path_factory.mktemp("flags") / "flags.json"
    flags.write_text(json.dumps({"flags": {"support-prompt": FLAG}}))
    told = policy(log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3}), flags)
    assert told.exit_code == 0
    return traces, told


@pytest.fixture
def passed(traces: "Traces", promising: "tuple[Traces, Result]") -> str:
    """The path of a store with a policy that passed the gate."""
    traces.begin_with(promising[0])
    return str(traces.path)


@pytest.mark.slow
def test_a_report_is_one_file_that_needs_nothing_and_is_the_same_twice(
    passed: str, tmp_path: Path
) -> None:
    store = passed
    page, html = reported(store, tmp_path / "one.html", "--examples", "2")
    reported(store, tmp_path / "two.html", "--examples", "2")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert len(html.encode()) < 1_000_000
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]
    assert not {"script", "img", "link", "iframe", "form"} & page.elements
    assert set(re.findall(r"https?://[^\"<\s]+", html)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
    }  # fmt: skip
    assert page.ids.most_common(1)[0][1] == 1
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in html


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_printed_report_has_everything_and_cuts_nothing(passed: str, tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="playwright is in the extra dev")
    reported(passed, tmp_path / "r.html", "--examples", "2")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": A4_WIDTH, "height": 1000})
        page.goto((tmp_path / "r.html").as_uri())
        page.set_viewport_size({"width": 400, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.set_viewport_size({"width": A4_WIDTH, "height": 1000})
        page.emulate_media(media="print")
        assert page.evaluate(CUT) == []
        assert page.evaluate(FOLDED) == []
        printed = page.pdf(format="A4")
    sheets = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 2 <= sheets <= 20


def test_a_report_says_what_the_run_said(
    passed: str, promising: "tuple[Traces, Result]", tmp_path: Path
) -> None:
    store, (_, told) = passed, promising
    page, html = reported(store, tmp_path / "r.html", "--run", "policy")
    gain, lower = re.search(r"gain ([+-][\d.]+).*at least ([+-][\d.]+)", told.output).groups()  # type: ignore[union-attr]
    assert f"a gain of {gain}, with 95 % confidence each at least {lower}" in page.text
    assert "No reason to refuse was found" in page.text
    assert "No control was run." in page.text
    assert "Estimated on 2" in page.text
    for arm in ARMS:
        assert f"<td>{arm}</td>" in html
    assert "0.8000" in page.text
    assert "Rank correlation of the outcome with output tokens" in page.text
    assert "Rewards or choices have come since" not in page.text
    with open_store(store) as opened:
        opened.execute("UPDATE reward_events SET value = 1 WHERE rollout_id = 'brief-1'")
    later, _ = reported(store, tmp_path / "later.html")
    assert "Rewards or choices have come since" in later.text


def test_a_policy_that_was_learned_from_a_rule_has_its_arms_and_what_came_since(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    rule = tmp_path / "grade.sql"
    rule.write_text("SELECT rollout_id, 1 - value AS value FROM rewards WHERE source IS NULL")
    assert policy(store, flags, "--reward", str(rule), "--promote").exit_code == 0
    page, html = reported(store, tmp_path / "r.html", "--run", "policy")
    assert '<td>careful</td><td class="n">150</td><td class="n">0.2000</td>' in html
    assert "Estimated on 2" in page.text
    assert "Since then" not in page.text
    (run,) = traces.ask("SELECT run_id FROM runs WHERE command = 'policy'")
    served = {"policy_version": run["run_id"], "time": datetime.now(UTC).replace(tzinfo=None)}
    for number in range(4):
        traces.call(f"new-{number}")
        traces.arm(f"new-{number}", "brief", 0.9, **served)
        traces.task(f"new-{number}", f"new {number // 2}")
        traces.reward(f"new-{number}", 1.0)  # not what the policy was learned from
        traces.reward(f"new-{number}", 0.5 * (number % 2), name="grade")
    traces.store()
    page, _ = reported(store, tmp_path / "later.html", "--run", "policy")
    text = " ".join(page.text.split())
    assert (
        "4 rewarded rollouts of 2 tasks ran under this version, with a mean reward of 0.25" in text
    )


def test_outcomes_of_a_report_are_not_discounted_by_the_length_of_a_rollout(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    for rollout in (f"{arm}-{i}" for arm in ARMS for i in range(0, 150, 3)):
        for step in range(1, 8):
            traces.call(rollout, step, output_tokens=1)
    traces.store()
    assert policy(store, flags).exit_code == 0
    plain, _ = reported(store, tmp_path / "plain.html", "--examples", "1")
    learn("transitions", "--store", store, "--gamma", "0.5")
    discounted, _ = reported(store, tmp_path / "discounted.html", "--examples", "1")
    found = [re.search(r"Rank correlation .*? rollouts", page.text) for page in (plain, discounted)]
    assert found[0]
    assert found[1]
    assert found[0][0] == found[1][0]
    assert re.findall(r"outcome [\d.]+", plain.text) == re.findall(
        r"outcome [\d.]+", discounted.text
    )


def test_an_arm_that_was_never_tried_has_no_mean_and_ids_are_quoted_for_a_shell(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    flag = json.loads(flags.read_text())
    flag["flags"]["support-prompt"]["variants"]["new"] = "Be new."
    flag["flags"]["support-prompt"]["targeting"]["fractional"].append(["new", 1])
    flags.write_text(json.dumps(flag))
    for name in ("-r", "o'clock; ls"):
        traces.call(name, output_messages=None)
    store = log(traces, {"brief": 2e-5, "careful": 8e-5, "friendly": 3e-5})
    traces.ask("UPDATE reward_events SET value = value * 1e-4")
    policy(store, flags, "--reward-range", "0,0.0001")
    page, html = reported(store, tmp_path / "r.html", "--run", "policy")
    assert "nan" not in page.text
    assert '<td>new</td><td class="n">0</td><td class="n"></td><td class="n"></td>' in html
    assert "lightning-ingest show -- -r" in page.text


def test_doubts_and_examples_of_a_policy_are_of_its_own_rewards_and_tasks(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    # On a fifth of the tasks, the arm that is best elsewhere is the worst one.
    number = r"regexp_extract(rollout_id, '(\d+)$', 1)::INT"
    traces.ask(f"UPDATE reward_events SET value = 1 - value WHERE {number} % 50 < 10")
    assert policy(store, flags, "--reward", "task_success").exit_code in {0, 3}
    before, _ = reported(store, tmp_path / "before.html", "--run", "policy", "--examples", "2")
    assert re.search(r"<td>task \d+</td>", (tmp_path / "before.html").read_text())
    # Now transitions are of another reward, which goes with the length, and of other rollouts.
    for number in range(20):
        traces.call(f"other-{number}", output_tokens=number)
        traces.reward(f"other-{number}", float(number), name="length")
    assert learn("transitions", "--store", traces.store(), "--reward", "length").exit_code == 0
    after, _ = reported(store, tmp_path / "after.html", "--run", "policy", "--examples", "2")
    for pattern in (r"Rank correlation .*? rollouts", r"(?:best|worst): \S+ outcome [\d.]+"):
        assert re.findall(pattern, before.text)
        assert re.findall(pattern, before.text) == re.findall(pattern, after.text)


def test_bounds_of_a_gate_of_a_loop_have_its_confidence(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    wanted = Request("support-prompt", flags, flags, reward_range=(0, 1), alpha=0.0125)
    verdict = learn_policy(store, wanted).verdict
    page, html = reported(store, tmp_path / "r.html")
    assert f"with 98.75 % confidence each at least {verdict.lower:+.4f}" in page.text
    assert "one-sided 98.75 % bounds" in html
    assert "95 % confidence" not in page.text


def test_candidates_that_the_same_rollouts_judged_are_counted_once_per_setting(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.5, "careful": 0.55, "friendly": 0.5})
    told = "judged by the same held-out rollouts, or by some of them, before"
    assert told not in policy_alone(store, flags).output
    # The same candidate again.
    assert told not in policy_alone(store, flags, "--least-gain", "0.1", "--until", "1m").output
    assert told not in policy_alone(store, flags, "--shuffle-rewards", "1").output
    assert f"1 other candidate was {told}" in policy_alone(store, flags, "--kl-weight", "0").output
    third = policy_alone(store, flags, "--kl-weight", "0.5").output
    assert f"2 other candidates were {told}" in third
    assert "With 3 candidates the probability that one passes by chance is up to 3 x 0.05" in third
    page, _ = reported(store, tmp_path / "r.html")
    assert "2 other candidates were judged by the same held-out rollouts" in page.text
    assert "up to 3 x 0.05 = 0.15" in page.text
    # The rollouts of before are among the held-out ones still.
    traces.call("new")
    traces.arm("new", "brief", 1 / 3)
    traces.reward("new", 1.0)
    grown = policy_alone(traces.store(), flags, "--kl-weight", "0.6").output
    assert f"3 other candidates were {told}" in grown


def test_other_choices_of_the_data_are_counted(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.4, "careful": 0.6, "friendly": 0.5})
    number = r"regexp_extract(rollout_id, '(\d+)$', 1)::INT"
    traces.ask(
        "INSERT INTO reward_events BY NAME SELECT * REPLACE"
        " ('clicks' AS name, reward_id || '-clicks' AS reward_id) FROM reward_events"
    )
    traces.ask(f"UPDATE arms SET time = time + INTERVAL 1 DAY WHERE {number} % 4 = 0")
    since = traces.ask("SELECT max(time)::DATE::VARCHAR AS day FROM arms")[0]["day"]
    told = "judged by the same held-out rollouts, or by some of them, before"
    options = ["--reward", "task_success"]
    assert told not in policy_alone(store, flags, *options).output
    clicks = policy_alone(store, flags, "--reward", "clicks").output
    # The rewards are equal, so the data are: nothing else was tried.
    assert told not in clicks
    traces.ask(f"UPDATE reward_events SET value = 0 WHERE name = 'clicks' AND {number} % 5 = 0")
    assert (
        f"1 other candidate was {told}" in policy_alone(store, flags, "--reward", "clicks").output
    )
    newest = policy_alone(store, flags, *options, "--since", since).output
    assert f"2 other candidates were {told}" in newest
    page, _ = reported(store, tmp_path / "r.html")
    assert "2 other candidates were judged by the same held-out rollouts" in page.text


def test_a_run_without_held_out_tasks_has_a_report(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    assert policy(store, flags, "--held-out", "0").exit_code == 3
    page, _ = reported(store, tmp_path / "r.html", "--run", "policy")
    assert "No rollout was held out, so nothing was judged." in page.text
    assert "To pass: hold tasks out" in page.text


def test_a_policy_that_was_learned_without_transitions_kept_no_rollout_from_them(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    words = ("--store", store, "--key", "support-prompt", "--flags", str(flags))
    assert learn("policy", *words, "--held-out", "0.5").exit_code == 0
    page, _ = reported(store, tmp_path / "without.html")
    note = "of the store as it is now; no transitions were built, and a policy is learned without"
    assert note in page.text
    assert page.text.count(" kept ") == 1  # in the table, and not as an empty bar
    learn("transitions", "--store", store)
    page, _ = reported(store, tmp_path / "with.html", "--run", "policy")
    assert "no transitions were built" not in page.text
    assert page.text.count(" kept ") == 2


@pytest.mark.slow
def test_a_refusal_names_its_reasons_and_what_would_change_them_beside_the_control(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.5, "careful": 0.52, "friendly": 0.5})
    assert policy(store, flags, "--shuffle-rewards", "1").exit_code == 3
    refused = policy(store, flags)
    assert refused.exit_code == 3
    page, _ = reported(store, tmp_path / "r.html")
    reason = re.search(r"The gate refused: ([^;.]+)", refused.output)
    assert reason
    assert "Refused" in page.text
    assert reason[1] in page.text
    assert "To pass:" in page.text
    assert "The same command with shuffled rewards" in page.text
    assert "there was nothing to learn." in page.text


@pytest.mark.slow
def test_text_of_conversations_is_there_only_if_asked_for_and_stays_text(
    passed: str, tmp_path: Path
) -> None:
    store = passed
    without, _ = reported(store, tmp_path / "without.html")
    assert "onerror" not in without.text
    page, html = reported(store, tmp_path / "with.html", "--examples", "3")
    assert page.text.count("<img src=x onerror=alert(1)>\\x1b[2J") == 6
    assert "<img" not in html
    assert "\x1b" not in html
    assert (page.text.count(" best: "), page.text.count(" worst: ")) == (3, 3)


def test_a_training_run_shows_its_curve_its_weights_and_tasks_that_got_worse(
    traces: "Traces", tmp_path: Path
) -> None:
    for task in range(12):
        for model in ("base", "tuned"):
            traces.call(f"{model}-{task}", response_model=model)
            traces.task(f"{model}-{task}", f"task {task}")
            traces.reward(f"{model}-{task}", float(task != 3) if model == "tuned" else 1.0)
    store = traces.store()
    gate = {"estimator": "within_tasks", "rollouts": 40, "tasks": 20, "effective_sample_size": 12.5,
            "behavior_value": 0.4, "value": 0.6, "gain": 0.2, "lower": 0.1, "upper": 0.3,
            "refusals": [], "mean_weight": 1.01, "least_gain": 0.0, "reward_range": [0, 1],
            "tasks_needed": 7.2, "rollouts_needed": {}, "passed": True}  # fmt: skip
    with open_store(store) as opened:
        opened.execute(f"""
            INSERT INTO runs BY NAME SELECT 'run-1' AS run_id, 'weights' AS command,
                '{{"model": "models/base", "algorithm": "rft"}}' AS config, 'passed' AS outcome,
                '{json.dumps(gate)}' AS gate, '{{"good_token_logprob_before": -0.5,
                "good_token_logprob_after": -0.25, "logged_tokens": 30, "rebuilt_tokens": 7,
                "held_out_rebuilt_tokens": 3}}' AS metrics, 'models/tuned' AS artifact,
                TIMESTAMP_NS '2026-11-02 10:00:00' AS started;
            INSERT INTO run_steps SELECT 'run-1', n, 'loss', 1.0 / (1 + n) FROM range(50) t(n);
            INSERT INTO run_steps VALUES ('run-1', 49, 'importance_weight/q50', 0.9),
                ('run-1', 49, 'importance_weight/q100', 3.5)""")
    page, html = reported(store, tmp_path / "r.html", "--run", "run-1")
    assert "loss, 50 steps" in page.text
    assert 'aria-label="loss by step"' in html
    assert 'aria-label="Quantiles of the importance weights"' in html
    assert "3.5" in page.text
    assert "-0.5  before, -0.25  after".replace("  ", " ") in page.text.replace("  ", " ")
    assert "fewer than about 8 held-out tasks" in page.text
    said = " ".join(page.text.split())
    assert "30 have the token ids that were logged. The token ids of 7 were rebuilt" in said
    assert "3 of these are held out" in said
    assert re.search(r"Measured on 12 tasks that both\s+base\s+and\s+tuned", page.text)
    assert "<td>task 3</td>" in html
    # The reward that transitions are built from is the one that counts.
    for task in range(12):
        for model in ("base", "tuned"):
            traces.reward(f"{model}-{task}", float(task == 5 and model == "base"), name="strict")
    assert learn("transitions", "--store", traces.store(), "--reward", "strict").exit_code == 0
    with open_store(store) as opened:
        opened.execute("UPDATE runs SET started = '2026-10-01' WHERE command = 'transitions'")
    page, html = reported(store, tmp_path / "strict.html", "--run", "run-1")
    assert "1 got worse" in " ".join(page.text.split())
    assert "<td>task 5</td>" in html
    assert "<td>task 3</td>" not in html


def test_a_store_without_runs_and_an_unknown_run_are_errors_with_the_next_step(
    traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    output = ("--output", str(tmp_path / "r.html"))
    none = learn("report", "--store", store, *output)
    assert (none.exit_code, "the command `policy` or `weights`" in none.output) == (1, True)
    policy(store, flags)
    unknown = learn("report", "--store", store, "--run", "no-such", *output)
    assert (
        unknown.exit_code,
        "the id or the command 'no-such'. The newest runs: 2" in unknown.output,
    ) == (
        1,
        True,
    )


def failed(store: str, run_id: str, *, command: str = "weights") -> None:
    """Record a later run that failed."""
    with open_store(store) as opened:
        opened.execute(f"""
            INSERT INTO runs BY NAME SELECT '{run_id}' AS run_id, '{command}' AS command,
                '{{}}' AS config, 'failed' AS outcome, '{{"error": "no disk\\nspace"}}' AS metrics,
                TIMESTAMP_NS '2099-11-02 10:00:00' AS started""")


def test_a_run_that_failed_before_it_learned_is_skipped_with_its_error(
    passed: str, flags: Path, tmp_path: Path
) -> None:
    store = passed
    output = ("--store", store, "--output", str(tmp_path / "r.html"))
    words = ("--flags", str(flags), "--reward-range", "0,1")
    assert learn("policy", "--store", store, "--key", "support-promt", *words).exit_code == 1
    with open_store(store) as opened:
        (good, typo) = opened.rows(
            "SELECT run_id, outcome FROM runs WHERE command = 'policy' ORDER BY started"
        )
    assert typo["outcome"] == "failed"
    for chosen in ((), ("--run", "policy")):
        result = learn("report", *output, *chosen)
        assert result.stdout.startswith(f"Run {good['run_id']} (")
        assert f"Skipped the newer run {typo['run_id']}, which failed: " in result.stderr
        assert "support-promt" in result.stderr
    result = learn("report", *output, "--run", typo["run_id"])
    assert (result.stdout.startswith(f"Run {typo['run_id']} (failed)"), result.stderr) == (True, "")
    for number in range(4):
        failed(store, f"later-{number}")
    result = learn("report", *output)
    assert result.stdout.startswith(f"Run {good['run_id']} (")
    assert "later-3, which failed: no disk space (--run later-3 reports on it)" in result.stderr
    assert result.stderr.endswith("Skipped 2 more runs that failed.\n")


def test_a_failed_run_is_reported_if_it_has_a_curve_or_no_run_has_anything(
    traces: "Traces", tmp_path: Path
) -> None:
    store = log(traces, {"brief": 0.2, "careful": 0.8, "friendly": 0.3})
    output = ("--store", store, "--output", str(tmp_path / "r.html"))
    failed(store, "one")
    failed(store, "two")
    result = learn("report", *output)
    assert (result.stdout.startswith("Run two (failed)"), result.stderr) == (True, "")
    assert "no disk space" in " ".join(Page((tmp_path / "r.html").read_text()).text.split())
    with open_store(store) as opened:
        opened.execute("INSERT INTO run_steps SELECT 'one', n, 'loss', 1 FROM range(5) t(n)")
    result = learn("report", *output)
    assert result.stdout.startswith("Run one (failed)")
    assert "Skipped the newer run two" in result.stderr


def test_rank_correlation_is_that_of_a_known_example() -> None:
    """IQ and hours of television of ten people: rho is -29/165."""
    iq = np.array([106.0, 100, 86, 101, 99, 103, 97, 113, 112, 110])
    hours = np.array([7.0, 27, 2, 50, 28, 29, 20, 12, 6, 17])
    assert rank_correlation(iq, hours) == pytest.approx(-29 / 165)
    assert rank_correlation(iq, np.ones(10)) is None


def test_judges_and_lengths_are_correlated_each_with_an_interval_over_tasks() -> None:
    rows = [
        {"rollout_id": str(i), "task_hash": i // 2, "outcome": float(i % 5), "output_tokens": i % 5,
         "source": "judge:kind@1", "score": float(-(i % 5))}
        for i in range(40)
    ]  # fmt: skip
    judge, length = correlations(rows)
    assert (judge.measure, length.measure) == ("judge:kind", "output tokens")
    assert (judge.value, judge.low, judge.high) == pytest.approx((-1.0, -1.0, -1.0))
    assert (length.value, length.rollouts) == pytest.approx((1.0, 40))
    assert correlations(rows[:5]) == []


@pytest.mark.slow
def test_a_report_is_whole_or_that_of_before(passed: str, tmp_path: Path) -> None:
    store = passed
    output = tmp_path / "new" / "r.html"
    words = ("report", "--store", store, "--output", str(output))
    assert learn(*words).exit_code == 0
    before = output.read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # as on a full disk
    try:
        failed = learn(*words, "--examples", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (failed.exit_code, "File too large" in failed.output) == (1, True), failed.output
    assert output.read_text() == before
    assert [one.name for one in output.parent.iterdir()] == ["r.html"]
