"""`lightning-learn judge` against a real server."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import create_server
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support.judge_server import JudgeServer, judge_server
from support.running import LIMIT_S, background, eventually, start

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces

SCORES = "SELECT rollout_id, value, label, explanation, source FROM rewards ORDER BY rollout_id"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with judge_server() as running:
        yield running


def question(text: str) -> str:
    return f'[{{"role": "user", "parts": [{{"type": "text", "content": "{text}"}}]}}]'


def rollouts(traces: "Traces", **questions: str) -> None:
    for rollout, text in questions.items():
        traces.call(rollout, input_messages=question(text))
    traces.store()


def arguments(traces: "Traces", server: JudgeServer, *more: str) -> list[str]:
    where = ["--store", str(traces.path), "--endpoint", server.url, "--model", "gpt-judge"]
    return ["judge", *where, *more]


def judge(traces: "Traces", server: JudgeServer, *more: str) -> Result:
    return CliRunner().invoke(cli, arguments(traces, server, *more))


ONE = ("--measure", "intent_resolution")


def test_received_rewards_of_a_rubrics_name_are_told(traces: "Traces", server: JudgeServer) -> None:
    traces.reward("good", 1.0, name="intent_resolution")
    traces.reward("good", None, name="task_adherence", label="fine")
    rollouts(traces, good="quality=1")
    for _ in range(2):  # the scores of the first time are no rewards from elsewhere
        result = judge(traces, server)
        assert result.exit_code == 0
        assert "1 reward named 'intent_resolution' came from another source" in result.stderr
        assert "named 'task_" not in result.stderr


def test_three_measures_by_default_each_become_a_reward(
    traces: "Traces", server: JudgeServer
) -> None:
    rollouts(traces, good="quality=1")
    result = judge(traces, server)
    assert result.exit_code == 0, result.output
    rows = traces.ask("SELECT name, value, label, rollout_id, source FROM rewards ORDER BY name")
    assert [(row["name"], row["value"], row["label"]) for row in rows] == [
        ("intent_resolution", 1.0, "fail"),
        ("task_adherence", 1.0, "pass"),
        ("task_completion", 1.0, "pass"),
    ]
    assert {row["rollout_id"] for row in rows} == {"good"}
    assert all(row["source"].startswith(f"judge:{row['name']}@") for row in rows)
    assert set(server.keys) == {"Bearer sesame"}
    assert {request["model"] for request in server.requests} == {"gpt-judge"}


def test_nonsense_and_refusals_are_errors_and_no_zeros(
    traces: "Traces", server: JudgeServer
) -> None:
    rollouts(
        traces,
        fine="quality=4",
        nonsense="quality=4 judge=nonsense",
        off_scale="quality=9",
        scoreless="quality=4 judge=scoreless",
        refused="quality=4 judge=refused",
    )
    result = judge(traces, server, *ONE)
    assert result.exit_code == 0
    assert "intent_resolution: 1 rollout judged, mean 4 (1 to 5)." in result.stdout
    assert "4 without a score, such as: The judge" in result.stderr
    rows = {row["rollout_id"]: row for row in traces.ask(SCORES)}
    assert rows.pop("fine")["value"] == 4.0
    assert {(row["value"], row["label"]) for row in rows.values()} == {(None, "error")}
    assert rows["nonsense"]["explanation"].endswith("'What a nice agent!'")
    assert "9.0" in rows["off_scale"]["explanation"]
    assert "content filtered" in rows["refused"]["explanation"]


def test_only_nonsense_is_kept_as_errors_and_exits_with_1(
    traces: "Traces", server: JudgeServer
) -> None:
    rollouts(traces, only="quality=4 judge=nonsense")
    result = judge(traces, server, *ONE)
    assert result.exit_code == 1
    assert "No rollout got a score." in result.stderr
    (row,) = traces.ask(SCORES)
    assert (row["value"], row["label"]) == (None, "error")


def test_an_answer_is_paid_for_once(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=2", two="quality=5", nonsense="quality=2 judge=nonsense")
    prices = ("--input-price", "10000", "--output-price", "100000")
    first = judge(traces, server, *ONE, *prices)
    assert "3 answers asked for, 0 known before. Tokens: 300 read, 30 written." in first.stdout
    assert "Cost: 6.0000." in first.stdout  # 300 at 0.01 and 30 at 0.1
    before = traces.ask(SCORES)
    again = judge(traces, server, *ONE, *prices)
    assert "0 answers asked for, 3 known before. Tokens: 0 read, 0 written." in again.stdout
    assert "Cost: 0.0000." in again.stdout
    assert traces.ask(SCORES) == before
    assert len(server.requests) == 3


def test_errors_are_asked_again_on_demand_only(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=2", nonsense="quality=2 judge=nonsense")
    judge(traces, server, *ONE)
    judge(traces, server, *ONE, "--retry-errors")
    assert len(server.requests) == 3
    assert "judge=nonsense" in server.requests[-1]["messages"][-1]["content"]


def test_another_model_is_another_question_and_replaces_the_scores(
    traces: "Traces", server: JudgeServer
) -> None:
    rollouts(traces, one="quality=2")
    judge(traces, server, *ONE)
    (former,) = traces.ask(SCORES)
    judge(traces, server, *ONE, "--model", "other")
    (row,) = traces.ask(SCORES)
    assert len(server.requests) == 2
    assert row["source"] != former["source"]


def test_samples_give_a_mean_and_a_spread_beside_it(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=5,3,4")
    result = judge(traces, server, *ONE, "--samples", "3", "--temperature", "0.7")
    assert "1 rollout judged, mean 4 (1 to 5), mean spread 1." in result.stdout
    mean, spread = traces.ask(
        "SELECT name, value, label, explanation, rollout_id FROM rewards ORDER BY name"
    )
    assert (mean["name"], mean["value"], mean["label"]) == ("intent_resolution", 4.0, "pass")
    assert mean["explanation"].endswith("; spread 1.000. As its quality says.")
    assert (spread["name"], spread["value"]) == ("intent_resolution.spread", 1.0)
    assert spread["rollout_id"] == mean["rollout_id"] == "one"
    assert {request["temperature"] for request in server.requests} == {0.7}


def test_a_busy_server_is_asked_again(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, busy="quality=3 judge=busy")
    result = judge(traces, server, *ONE)
    assert result.exit_code == 0
    assert len(server.requests) == 2
    assert traces.ask(SCORES)[0]["value"] == 3.0


def test_a_failing_server_is_one_sentence_and_what_was_answered_is_kept(
    traces: "Traces", server: JudgeServer
) -> None:
    rollouts(traces, **{f"r{i}": f"quality={i}" for i in range(1, 6)})
    server.breaks_after = 3
    options = (*ONE, "--concurrency", "1", "--retries", "1")
    result = judge(traces, server, *options)
    assert result.exit_code == 1
    assert f"'{server.url}' gave no answer by model 'gpt-judge'" in result.stderr
    assert "on fire" in result.stderr
    assert (
        "At least 3 of 5 answers are kept, and the same command goes on from there."
        in result.stderr
    )
    assert traces.ask(SCORES) == []
    assert [run["outcome"] for run in traces.ask("SELECT outcome FROM runs")] == ["failed"]
    server.breaks_after = None
    server.requests.clear()
    assert judge(traces, server, *options).exit_code == 0
    assert len(server.requests) == 2
    assert [row["value"] for row in traces.ask(SCORES)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_endpoint_that_nobody_serves_is_one_sentence(traces: "Traces") -> None:
    rollouts(traces, one="quality=2")
    nobody = JudgeServer("http://127.0.0.1:9/v1")
    result = judge(traces, nobody, *ONE, "--retries", "0")
    assert result.exit_code == 1
    assert "Check --endpoint, --model and OPENAI_API_KEY" in result.stderr


def test_a_page_that_is_no_answer_is_one_sentence(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=2 judge=page")
    result = judge(traces, server, *ONE)
    assert result.exit_code == 1
    assert "no chat completion; is /v1 missing?" in result.stderr


def test_requests_run_at_once_up_to_the_limit(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, **{f"r{i}": f"rollout {i} quality=3" for i in range(9)})
    server.delay_s = 0.2
    judge(traces, server, *ONE, "--concurrency", "3")
    assert server.most_at_once == 3


def test_a_killed_run_loses_only_what_was_in_flight(traces: "Traces", server: JudgeServer) -> None:
    total, at_once = 24, 2
    rollouts(traces, **{f"r{i:02}": f"rollout {i} quality=3" for i in range(total)})
    server.delay_s = 0.1
    options = arguments(traces, server, *ONE, "--concurrency", str(at_once))
    with background(sys.executable, "-m", "otel_lightning.learner", *options) as process:
        eventually(lambda: len(server.requests) >= total // 2 or process.poll() is not None)
        assert process.poll() is None
    server.delay_s = 0.0
    result = CliRunner().invoke(cli, options, catch_exceptions=False)
    assert result.exit_code == 0
    assert len(server.requests) <= total + at_once
    assert {row["value"] for row in traces.ask(SCORES)} == {3.0}
    assert len(traces.ask(SCORES)) == total


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_asked_to_end_while_it_waits_says_so_in_a_word(
    traces: "Traces", monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    rollouts(traces, one="quality=2", two="quality=3")
    with create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LIMIT_S)
        nobody = JudgeServer(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        options = ["-m", "otel_lightning.learner", *arguments(traces, nobody, *ONE)]
        with background(sys.executable, *options, stderr=PIPE, text=True) as process:
            connection, _ = silent.accept()  # it waits for an answer from now on
            process.send_signal(number)
            _, told = process.communicate(timeout=LIMIT_S)
            connection.close()
    assert process.returncode == 1
    assert told.split() == ["Aborted!"]
    assert traces.ask(SCORES) == []


def test_rubrics_of_ones_own_in_toml_and_markdown(
    traces: "Traces", server: JudgeServer, tmp_path: Path
) -> None:
    rollouts(traces, one="quality=7")
    toml, markdown = tmp_path / "a.toml", tmp_path / "tone.md"
    toml.write_text('name = "depth"\nlowest = 0\nhighest = 10\ninstructions = "How deep?"\n')
    markdown.write_text("Is it polite?\n\nScale: 0 to 10, passes from 8\n")
    result = judge(traces, server, "--rubric", str(toml), "--rubric", str(markdown))
    assert result.exit_code == 0, result.output
    rows = traces.ask("SELECT name, value, label FROM rewards ORDER BY name")
    assert rows == [
        {"name": "depth", "value": 7.0, "label": None},
        {"name": "tone", "value": 7.0, "label": "fail"},
    ]
    prompts = {request["messages"][0]["content"] for request in server.requests}
    assert {("How deep?" in prompt, "Is it polite?" in prompt) for prompt in prompts} == {
        (True, False),
        (False, True),
    }


def test_selected_agents_are_judged_at_their_last_call(
    traces: "Traces", server: JudgeServer
) -> None:
    traces.call("a", 0, agent_name="billing", input_messages=question("quality=2"))
    traces.call("a", 1, agent_name="desk", input_messages=question("secret quality=5"))
    traces.call("b", 0, agent_name="desk", input_messages=question("quality=5"))
    traces.store()
    assert judge(traces, server, *ONE, "--agent", "bill*").exit_code == 0
    (row,) = traces.ask("SELECT rollout_id, span_id, value, source FROM rewards")
    assert (row["rollout_id"], row["span_id"], row["value"]) == ("a", "a.0", 2.0)
    assert row["source"].startswith("judge:intent_resolution/bill*@")
    assert "secret" not in server.requests[0]["messages"][-1]["content"]
    result = judge(traces, server, *ONE, "--agent", "nobody")
    assert result.exit_code == 1
    assert "No agent is named 'nobody'. Known: billing, desk." in result.stderr


def test_the_newest_rollouts_come_first_and_those_without_text_are_counted(
    traces: "Traces", server: JudgeServer
) -> None:
    silent: dict[str, Any] = {"input_messages": None, "output_messages": None}
    traces.call("old", 0, input_messages=question("quality=2"))
    traces.call("new", 1, input_messages=question("quality=3"))  # a second later
    traces.call("silent", 2, content="absent", **silent)
    traces.store()
    result = judge(traces, server, *ONE, "--limit", "1")
    assert "1 rollout without text left out." in result.stdout
    assert [row["rollout_id"] for row in traces.ask(SCORES)] == ["new"]


@pytest.mark.slow
def test_it_works_while_the_ingester_runs(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=4")
    ingester = start(traces.path)
    try:
        result = judge(traces, server, *ONE)
        assert result.exit_code == 0, result.output
    finally:
        ingester.stop()
    assert [row["value"] for row in traces.ask(SCORES)] == [4.0]


def test_each_run_is_noted_with_what_it_took(traces: "Traces", server: JudgeServer) -> None:
    rollouts(traces, one="quality=4")
    judge(traces, server, *ONE)
    (run,) = traces.ask(
        "SELECT command, outcome, artifact, (metrics ->> '$.usage.input_tokens')::INT AS tokens, "
        "metrics ->> '$.tallies[0].name' AS name, config ->> '$.rubrics[0].highest' AS highest, "
        "config ->> '$.sources.intent_resolution' = (SELECT any_value(source) FROM scores) AS same "
        "FROM runs"
    )
    assert run == {
        "command": "judge",
        "outcome": "done",
        "artifact": "scores",
        "tokens": 100,
        "name": "intent_resolution",
        "highest": "5",
        "same": True,
    }


def test_a_store_without_text_has_nothing_to_judge(traces: "Traces", server: JudgeServer) -> None:
    traces.store()
    result = judge(traces, server)
    assert result.exit_code == 1
    assert "The store has no rollout, so there is nothing to judge. Send traces" in result.stderr
    traces.call("silent", input_messages=None, output_messages=None)
    traces.store()
    result = judge(traces, server)
    assert result.exit_code == 1
    assert "None of 1 rollout in" in result.stderr
    assert "has messages, so there is nothing to judge. Let the instr" in result.stderr


def test_a_cache_that_is_another_kind_of_file_is_one_sentence(
    traces: "Traces", server: JudgeServer, tmp_path: Path
) -> None:
    rollouts(traces, one="quality=4")
    other = tmp_path / "notes.txt"
    other.write_text("Not a database, but long enough to look at. " * 10)
    result = judge(traces, server, "--cache", str(other))
    assert result.exit_code == 1
    assert "Choose another file with --cache." in result.stderr
