"""`lightning-learn prompts` against a real server: what is shown, checked, written and refused."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support.prompt_server import (
    KINDS,
    RULES,
    UNKNOWN,
    PromptServer,
    Reply,
    Script,
    learns_rules,
    prompt_server,
    proposal,
    records_of,
    true_success,
)
from support.running import serving

from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.serving import flag_document
from otel_lightning.learner.prompts.proposals.ask import read_proposal
from otel_lightning.learner.prompts.proposals.checks import Limits, refusal
from otel_lightning.learner.prompts.serving.variants import text_hash
from otel_lightning.learner.score.judges.answers import Answer

if TYPE_CHECKING:
    from conftest import Traces

Serve = Callable[[Script], PromptServer]
FIRST = "You answer the requests of customers."
TEXT = """{ "flags": {
    "support-prompt": {"state": "ENABLED",   "defaultVariant": "careful",
        "variants": {"careful": "You answer the requests of customers.",
                     "brief": "Be brief."},
        "targeting": {"fractional": [["careful", 66], ["brief", 34]]}
    },
    "other":  {"state": "DISABLED",
        "variants": {"on": true} }
} }
"""


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(prompt_server(script))


def question(kind: str, number: int) -> str:
    part = {"type": "text", "content": f"My {kind}, case {number}?"}
    return json.dumps([{"role": "user", "parts": [part]}])


def log(traces: "Traces", rollouts: int = 100, seed: int = 0) -> str:
    """Log rollouts of the world of five kinds, one per task; failures are explained."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for i in range(rollouts):
        kind, rollout = KINDS[i % 5], f"r{i:04}"
        arm = "careful" if rng.random() < 0.66 else "brief"
        traces.call(rollout, input_messages=question(kind, i))
        traces.arm(rollout, arm, {"careful": 0.66, "brief": 0.34}[arm])
        traces.task(rollout, f"task-{i}")
        success = rng.random() < UNKNOWN
        why = None if success else f"The agent should have said {RULES[kind]}."
        traces.reward(rollout, float(success), explanation=why)
    return traces.store()


def ask(traces: "Traces", flags: Path, server: PromptServer, *options: str) -> Result:
    where = ["--store", str(traces.path), "--key", "support-prompt", "--flags", str(flags)]
    model = ["--endpoint", server.url, "--model", "gpt-writer", "--retries", "0"]
    return CliRunner().invoke(cli, ["prompts", *where, *model, *options], catch_exceptions=False)


def flag(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["flags"]["support-prompt"]
    return found


def new_variants(path: Path) -> dict[str, str]:
    return {n: t for n, t in flag(path)["variants"].items() if n not in ("careful", "brief")}


def numbered(_: dict[str, Any], number: int) -> Reply:
    return proposal(f"You answer well, way {number}.")


@pytest.mark.slow
def test_thirty_logged_rollouts_teach_what_search_needs_hundreds_for(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 45)  # of which about thirty are of the train split
    result = ask(traces, flags, serve(learns_rules), "--candidates", "1", "--records", "30")
    assert result.exit_code == 0, result.output
    ((name, text),) = new_variants(flags).items()
    assert true_success(FIRST) == UNKNOWN
    assert true_success(text) >= 0.8, text
    parent = flag(flags)["metadata"][f"lightning.candidate.{name}"].split(" ")[0]
    assert name.startswith(f"{parent}-")


def test_with_shuffled_rewards_nothing_is_gained(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 300)
    server = serve(learns_rules)
    result = ask(
        traces, flags, server, "--candidates", "6", "--max-arms", "9", "--shuffle-rewards", "1"
    )
    assert result.exit_code in (0, 3), result.output
    gains = [true_success(text) - UNKNOWN for text in new_variants(flags).values()]
    assert len(gains) > 1
    assert sum(gains) / len(gains) < 0.1, gains


def test_new_variants_take_a_small_share_from_all_live_ones_in_proportion(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    result = ask(traces, flags, serve(numbered), "--candidates", "2")
    assert result.exit_code == 0, result.output
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert sum(weights.values()) == 10_000
    assert (weights.pop("careful"), weights.pop("brief")) == (5940, 3060)
    assert sorted(weights) == sorted(new_variants(flags))
    assert set(weights.values()) == {500}
    propensities = {
        name.removeprefix("lightning.propensity."): value
        for name, value in flag(flags)["metadata"].items()
        if name.startswith("lightning.propensity.")
    }
    assert propensities == {"careful": 0.594, "brief": 0.306} | dict.fromkeys(weights, 0.05)
    assert "careful 66.0% -> 59.4%; brief 34.0% -> 30.6%" in result.stdout


def test_file_keeps_its_formatting_and_rollback_restores_the_shares(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    assert ask(traces, flags, serve(numbered), "--candidates", "1").exit_code == 0
    lines = flags.read_text().splitlines()
    assert lines[1].startswith('    "support-prompt": {"state": "ENABLED",   "defaultVariant"')
    assert lines[-4:] == TEXT.splitlines()[-4:]
    where = ["--store", str(traces.path), "--key", "support-prompt"]
    listed = CliRunner().invoke(cli, ["policies", *where])
    assert listed.exit_code == 0, listed.output
    back = CliRunner().invoke(cli, ["rollback", *where], catch_exceptions=False)
    assert back.exit_code == 0, back.output
    assert flag_document.live_shares({"flags": {"k": flag(flags)}}, "k") == {
        "careful": 0.66,
        "brief": 0.34,
    }


def test_stock_flagd_provider_serves_the_new_variants(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    from openfeature import api
    from openfeature.contrib.provider.flagd import FlagdProvider
    from openfeature.contrib.provider.flagd.config import ResolverType
    from openfeature.evaluation_context import EvaluationContext

    log(traces)
    assert ask(traces, flags, serve(numbered), "--share", "0.5").exit_code == 0
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    api.set_provider_and_wait(provider)
    try:
        client = api.get_client()
        served = {
            client.get_string_details("support-prompt", "", EvaluationContext(f"user-{n}")).variant
            for n in range(300)
        }
    finally:
        api.shutdown()
    assert served == set(flag(flags)["variants"])


def test_only_train_tasks_are_shown_most_of_them_failures(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 200)
    server = serve(numbered)
    assert ask(traces, flags, server, "--records", "9").exit_code == 0
    made = CliRunner().invoke(
        cli, ["transitions", "--store", str(traces.path)], catch_exceptions=False
    )
    assert made.exit_code == 0, made.output
    held_out = {
        row["rollout_id"]
        for row in traces.ask("SELECT rollout_id FROM transitions WHERE split = 'heldout'")
    }
    used = {r for row in traces.ask("SELECT records FROM prompts") for r in row["records"]}
    assert len(held_out) > 30
    assert used
    assert not used & held_out
    for request in server.requests:
        outcomes = [record["outcome"] for record in records_of(request)]
        assert sorted(outcomes) == ["failed"] * 6 + ["succeeded"] * 3
    assert len({request["messages"][-1]["content"] for request in server.requests}) == 3


def test_each_proposal_is_recorded_with_its_records_and_reason(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    replies = [proposal("A new prompt."), Reply("What a nice agent!"), proposal("Be  brief.")]
    assert ask(traces, flags, serve(lambda _, n: replies[n]), "--concurrency", "1").exit_code == 0
    rows = traces.ask("SELECT * FROM prompts ORDER BY call")
    assert [row["variant"] is not None for row in rows] == [True, False, False]
    assert rows[0]["text"] == "A new prompt."
    assert rows[0]["reason"] == "It should help."
    assert "no JSON object with a prompt: 'What a nice agent!'" in rows[1]["refused"]
    assert rows[2]["refused"] == "it equals a variant, or a proposal of before"
    assert [row["parent"] for row in rows[:2]] == [rows[0]["parent"]] * 2
    assert {len(row["records"]) for row in rows} == {24}
    (run,) = traces.ask("SELECT run_id, command, outcome FROM runs")
    assert run == {"run_id": rows[0]["run_id"], "command": "prompts", "outcome": "written"}


NONSENSE = {
    "chatter": Reply("What a nice agent!"),
    "empty": Reply(""),
    "no prompt in the object": Reply('{"reason": "x"}'),
    "prompt is a number": Reply('{"reason": "x", "prompt": 4}'),
    "cut off": Reply('{"reason": "x", "prompt": "You answer', "length"),
    "cut off where it looks whole": Reply('{"reason": "x", "prompt": "Be kind."}', "length"),
    "empty prompt": proposal("  "),
    "thinking in the prompt": proposal("<think>hmm the user wants me to</think> Be kind."),
    "fence around all of it": proposal("```\nBe kind.\n```"),
    "unclosed fence": Reply("```\nYou answer the requests"),
    "fence whose first line may be text": Reply("```Careful\nsecond line\n```"),
    "a placeholder that the agent does not fill": proposal("Be kind to {name}."),
    "a secret": proposal("Use the key sk-abcdefghijklmnop1234."),
    "an address of a customer": proposal("Write to ada@example.com."),
    "too long": proposal("Be kind. " * 1000),
    "broken unicode": Reply('{"reason": "x", "prompt": "Be kind \\ud800."}'),
    "copied": proposal("Say: one two three four five six seven eight nine"),
    "the same as its parent": proposal(FIRST),
    "the same as another, but for white space": proposal("Be\n brief. "),
    "deeply nested": Reply("[" * 5000 + '{"prompt"'),
    "ten megabytes": Reply("You are an agent. " * 600_000),
    "fences that are never closed": Reply("```a\n" * 200_000),
    "objects that are never closed": Reply('{"a":' * 150_000),
    "no finish reason": Reply('{"reason": "x", "prompt": "Be kind."}', None),
}


SAID = "One two three four five six seven eight nine"


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_with_a_reason(reply: Reply) -> None:
    kept = {"content": reply.content, "finish_reason": reply.finish_reason}
    found = read_proposal(Answer(json.dumps(kept)))
    limits = Limits(FIRST, 4000, {text_hash(FIRST), text_hash("Be brief.")}, [SAID])
    assert found.refused or refusal(str(found.prompt), limits)


def test_equal_refusals_are_one_line_with_their_number(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    result = ask(traces, flags, serve(lambda _, __: NONSENSE["chatter"]))
    # Of three calls the last one is for the second best variant.
    assert "Refused 2 times, for careful: " in result.stderr
    assert "Refused, for brief: " in result.stderr
    assert result.stderr.count("Refused") == 2
    assert len(traces.ask("SELECT refused FROM prompts")) == 3


def test_nonsense_changes_nothing_and_is_recorded(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    replies = [NONSENSE["chatter"], NONSENSE["a secret"], NONSENSE["broken unicode"]]
    result = ask(traces, flags, serve(lambda _, n: replies[n]))
    assert result.exit_code == 3, result.output
    assert result.stderr.count("Refused, for ") == 3
    assert "Nothing to try: 3 proposals were refused, and none is left." in result.stderr
    assert flags.read_text() == TEXT
    rows = traces.ask("SELECT variant, refused FROM prompts")
    assert [row["variant"] for row in rows] == [None] * 3
    assert all(row["refused"] for row in rows)
    assert traces.ask("SELECT outcome FROM runs") == [{"outcome": "nothing"}]


def test_lost_placeholder_is_refused(traces: "Traces", flags: Path, serve: Serve) -> None:
    flags.write_text(TEXT.replace("requests of", "requests of {{name}} and other"))
    log(traces)
    result = ask(traces, flags, serve(numbered), "--candidates", "1", "--records", "3")
    assert result.exit_code == 3
    assert "it lost the placeholder {{name}}" in result.stderr


def test_a_plain_fence_is_read_where_the_model_knows_no_json(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    reply = Reply("It is too vague.\n```text\nCheck twice.\n```")
    assert ask(traces, flags, serve(lambda *_: reply), "--candidates", "1").exit_code == 0
    assert list(new_variants(flags).values()) == ["Check twice."]


def test_model_that_fails_is_no_success_and_its_answers_are_kept(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)

    def breaks(request: dict[str, Any], number: int) -> Reply:
        return numbered(request, number) if number == 0 else Reply("forbidden", None, 403)

    server = serve(breaks)
    result = ask(traces, flags, server, "--concurrency", "1")
    assert result.exit_code == 1
    assert f"'{server.url}' gave no answer by model 'gpt-writer'" in result.stderr
    assert flags.read_text() == TEXT
    (run,) = traces.ask("SELECT outcome FROM runs")
    assert run["outcome"] == "failed"
    server.script = numbered
    again = ask(traces, flags, server)
    assert "2 answers asked for, 1 known before" in again.stdout


class Drips(BaseHTTPRequestHandler):
    """Sends a byte of its answer now and then, and never ends."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        with suppress(OSError):  # until nobody reads any more
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""


def test_answer_that_never_ends_is_given_up_and_one_that_cannot_be_asked_for_is_told(
    traces: "Traces", flags: Path
) -> None:
    log(traces)
    server = PromptServer(numbered)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Drips)) as url:
        server.url = f"{url}/v1"
        result = ask(traces, flags, server, "--timeout", "1", "--retries", "0")
    assert result.exit_code == 1
    assert "the whole answer had not come after 1 s" in result.stderr
    refused = ask(traces, flags, server, "--retries", "0")
    assert refused.exit_code == 1
    assert "Connection refused" in refused.stderr
    assert "The flag file was not changed. At least 0 of 3 answers are kept" in refused.stderr
    assert flags.read_text() == TEXT


def test_ideas_of_before_are_not_tried_again_and_the_losers_are_shown(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(lambda *_: proposal("A new prompt."))
    assert ask(traces, flags, server, "--candidates", "1").exit_code == 0
    again = ask(traces, flags, server, "--candidates", "1")
    assert again.exit_code == 3
    assert "it equals a variant, or a proposal of before" in again.stderr
    assert len(server.requests) == 2
    (name,) = new_variants(flags)
    document = json.loads(flags.read_text())
    document["flags"]["support-prompt"]["targeting"] = {
        "fractional": [["careful", 1], ["brief", 1], [name, 0]]
    }
    flags.write_text(json.dumps(document))
    ask(traces, flags, server, "--candidates", "1")
    system = server.requests[-1]["messages"][0]["content"]
    assert '# Tried before, did not help\n\n- "A new prompt."' in system


def test_file_that_another_program_changes_meanwhile_keeps_that_change(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    edited = TEXT.replace('"careful", 66', '"careful", 50').replace('"brief", 34', '"brief", 50')

    def edits(request: dict[str, Any], number: int) -> Reply:
        flags.write_text(edited.replace('"on": true', '"on": false'))
        return numbered(request, number)

    result = ask(traces, flags, serve(edits), "--candidates", "1")
    assert result.exit_code == 0
    assert "changed by another program 1 time meanwhile; its changes are kept." in result.stdout
    assert json.loads(flags.read_text())["flags"]["other"]["variants"] == {"on": False}
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert (weights["careful"], weights["brief"]) == (4500, 4500)


def test_parent_that_is_edited_meanwhile_is_not_overwritten(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    edited = TEXT.replace("requests of customers", "questions of customers").replace(
        "Be b", "Stay b"
    )

    def edits(request: dict[str, Any], number: int) -> Reply:
        flags.write_text(edited)
        return numbered(request, number)

    result = ask(traces, flags, serve(edits), "--candidates", "1")
    assert result.exit_code == 1
    assert "was changed while the model was asked" in result.stderr
    assert flags.read_text() == edited
    (row,) = traces.ask("SELECT variant, refused FROM prompts")
    assert row["variant"] is None
    assert "not written" in row["refused"]
    assert traces.ask("SELECT * FROM promotions") == []


def test_dry_run_prints_the_prompts_and_writes_nothing(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    result = ask(traces, flags, server, "--dry-run", "--candidates", "2")
    assert result.exit_code == 0, result.output
    assert "You answer well, way 0." in result.stdout
    assert flags.read_text() == TEXT
    assert traces.ask("SELECT * FROM prompts") == []
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert len(server.requests) == 2  # the answers of the dry run are used


@pytest.mark.slow
def test_full_flag_takes_no_more_until_a_loser_is_known(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    assert ask(traces, flags, server, "--max-arms", "3").exit_code == 0
    (name,) = new_variants(flags)
    full = ask(traces, flags, server, "--max-arms", "3")
    assert full.exit_code == 3
    assert "3 variants are served already" in full.stderr
    for i in range(400):  # the new variant loses to its parent
        rollout, arm = f"later-{i}", (name, "careful")[i % 2]
        traces.call(rollout, input_messages=question("refund", i))
        traces.arm(rollout, arm, 0.05)
        traces.task(rollout, f"later-{i}")
        traces.reward(rollout, float(arm == "careful"))
    traces.store()
    result = ask(traces, flags, server, "--max-arms", "3")
    assert result.exit_code == 0, result.output
    assert f"{name}: worse than its parent, gets no traffic any more." in result.stdout
    weights = dict(flag(flags)["targeting"]["fractional"])
    assert weights[name] == 0
    assert name in flag(flags)["variants"]
    assert len([weight for weight in weights.values() if weight]) == 3


def test_components_of_an_object_are_improved_in_turn(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    document = json.loads(TEXT)
    document["flags"]["support-prompt"]["variants"] = {
        "careful": {"system": "Answer.", "rewrite": "Write it again.", "turns": 3},
        "brief": {"system": "Answer briefly.", "rewrite": "Shorten it.", "turns": 2},
    }
    flags.write_text(json.dumps(document))
    log(traces)
    assert ask(traces, flags, serve(numbered), "--candidates", "2").exit_code == 0
    values = [value for value in new_variants(flags).values() if isinstance(value, dict)]
    assert len(values) == 2
    rows = traces.ask("SELECT component, text FROM prompts ORDER BY call")
    assert [row["component"] for row in rows] == ["system", "rewrite"]
    for row, value in zip(
        rows, sorted(values, key=lambda v: "way" not in v["system"]), strict=True
    ):
        assert value[row["component"]] == row["text"]
        assert value["turns"] in (2, 3)


def no_choices(traces: "Traces") -> None:
    traces.call("r0")
    traces.reward("r0", 0.0)


def no_rewards(traces: "Traces") -> None:
    traces.call("r0")
    traces.call("r1")
    traces.arm("r0", "careful", 0.66)
    traces.reward("r1", 1.0)


@pytest.mark.parametrize(
    ("fill", "told"),
    [(no_choices, "has no choices for flag 'support-prompt'"), (no_rewards, "has a reward")],
)
def test_store_without_choices_or_rewards_is_told_apart(
    traces: "Traces",
    flags: Path,
    serve: Serve,
    fill: Callable[["Traces"], None],
    told: str,
) -> None:
    fill(traces)
    traces.store()
    result = ask(traces, flags, serve(numbered))
    assert result.exit_code == 1
    assert told in result.stderr


FRACTIONS = '"targeting": {"fractional": [["careful", 66], ["brief", 34]]}'
CANARY = ', "metadata": {"lightning.policy.version": "p1@0.1"}'
FLAGS = {
    "is disabled": ('"ENABLED"', '"DISABLED"'),
    "No variant of flag": ('{"careful": "You answer', '{"careful": 1, "brief": 2}, "was": {"x": "'),
    "serves a canary": (FRACTIONS, FRACTIONS + CANARY),
    "drawn together with the others of 'support-prompt+model'": (
        '"fractional": [',
        '"fractional": [{"cat": ["support-prompt+model", {"var": "targetingKey"}]}, ',
    ),
}


@pytest.mark.parametrize("told", FLAGS)
def test_flag_to_which_nothing_can_be_added_is_refused(
    traces: "Traces", flags: Path, serve: Serve, told: str
) -> None:
    log(traces, 20)
    before, after = FLAGS[told]
    assert before in TEXT
    flags.write_text(TEXT.replace(before, after, 1))
    result = ask(traces, flags, serve(numbered))
    assert result.exit_code == 1
    assert told in result.stderr


def test_rollouts_of_other_variants_only_are_refused_before_the_model_is_asked(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    flags.write_text(TEXT.replace("careful", "calm").replace("brief", "short"))
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 1
    assert "which has: calm, short. The rollouts are of: brief, careful." in result.stderr
    assert server.requests == []


def test_a_flag_that_serves_no_text_is_refused_before_a_rule_is_applied(
    traces: "Traces", flags: Path, serve: Serve, tmp_path: Path
) -> None:
    log(traces, 20)
    document = json.loads(TEXT)
    of_flag = document["flags"]["support-prompt"]
    of_flag["variants"]["limit"] = 3
    of_flag |= {"defaultVariant": "limit", "targeting": {}}
    flags.write_text(json.dumps(document))
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    result = ask(traces, flags, serve(numbered), "--reward", str(rule))
    assert result.exit_code == 1
    assert "serves no variant that is a text" in result.stderr
    assert traces.ask("SELECT * FROM scores") == []


def test_variants_that_are_all_worse_than_their_parents_are_refused_before_the_model_is_asked(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    # The parent is served no more, and all traffic goes to a variant that loses to it.
    document = json.loads(TEXT)
    of_flag = document["flags"]["support-prompt"]
    of_flag["variants"] = {"careful": FIRST, "careful-1a2b": "Guess."}
    of_flag["targeting"] = {"fractional": [["careful", 0], ["careful-1a2b", 100]]}
    of_flag["metadata"] = {"lightning.candidate.careful-1a2b": "careful run-1"}
    flags.write_text(json.dumps(document))
    for i in range(200):
        rollout, arm = f"r{i}", ("careful-1a2b", "careful")[i % 2]
        traces.call(rollout, input_messages=question("refund", i))
        traces.arm(rollout, arm, 0.5)
        traces.task(rollout, f"task-{i}")
        traces.reward(rollout, float(arm == "careful"))
    traces.store()
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 1
    assert "none would be left beside new ones: careful-1a2b. Give a weight to careful." in (
        result.stderr
    )
    assert server.requests == []


def test_nothing_failed_is_nothing_to_learn_from(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    for i in range(12):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "careful", 0.66)
        traces.reward(f"r{i}", 1.0)
    traces.store()
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 3
    assert "no rollout failed" in result.stderr
    assert server.requests == []


def test_killed_run_is_finished_by_the_next_without_asking_again(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(numbered)
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    written, rows = flags.read_text(), traces.ask("SELECT * FROM prompts ORDER BY call")
    # As if the process had been killed before it wrote the file.
    flags.write_text(TEXT)
    with_store(traces, "DELETE FROM runs")
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert flags.read_text() == written
    assert len(server.requests) == 2
    after = traces.ask("SELECT * FROM prompts ORDER BY call")
    assert [row | {"created": None} for row in after] == [row | {"created": None} for row in rows]
    assert len(traces.ask("SELECT * FROM promotions")) == 1
    # As if it had been killed after.
    with_store(traces, "DELETE FROM runs")
    assert ask(traces, flags, server, "--candidates", "2").exit_code == 0
    assert flags.read_text() == written
    assert len(traces.ask("SELECT * FROM promotions")) == 1
    assert len(traces.ask("SELECT * FROM runs")) == 1


def with_store(traces: "Traces", sql: str) -> None:
    from otel_lightning.collector.store import open_store

    with open_store(traces.path) as store:
        store.execute(sql)
