"""The agents of the examples: not one line of ours, and a grader that knows right from wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.scripted_model import Message, calls, scripted_model, text_message

from otel_lightning.collector.store import open_store
from otel_lightning.learner.score.rules import python
from otel_lightning.learner.score.rules.spec import read_rule

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = ("calculator", "room_booking", "search", "text_to_sql")
sys.path.insert(0, str(EXAMPLES))


def graded(rule: str, **columns: list[Any]) -> tuple[list[float | None], list[str | None]]:
    """Give rewards to outputs, as `lightning-learn run --grade` does."""
    function = python.load(read_rule(str(EXAMPLES / rule)))
    names = [f"r{number}" for number in range(len(columns["output"]))]
    scores = function(pl.LazyFrame({"rollout_id": names, **columns}))
    return scores["value"].to_list(), scores["explanation"].to_list()


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_has_not_one_line_of_ours(name: str) -> None:
    seen: set[Path] = set()
    waiting = [EXAMPLES / name / "agent.py"]
    while waiting:
        file = waiting.pop()
        seen.add(file)
        text = file.read_text("utf-8")
        assert not re.search(r"lightning|opentelemetry|shared", text, re.IGNORECASE), file
        imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
        beside = [EXAMPLES / name / f"{module}.py" for module in imported]
        waiting += [path for path in beside if path.exists() and path not in seen]


@pytest.mark.parametrize("name", NAMES)
def test_tasks_have_ids_of_their_own_and_two_splits(name: str, tmp_path: Path) -> None:
    import importlib

    task = importlib.import_module(f"{name}.task")
    task.prepare(tmp_path)
    lines = task.tasks(tmp_path)
    assert lines == task.tasks(tmp_path)
    assert len({line["id"] for line in lines}) == len(lines)
    splits = [line["metadata"]["split"] for line in lines]
    assert 0.2 < splits.count("heldout") / len(splits) < 0.4
    asked = {(line["metadata"]["split"], line.get("question") or line["request"]) for line in lines}
    assert len({question for _, question in asked}) == len(asked), "a question is in both splits"


def test_a_query_is_right_if_it_returns_the_same_rows_on_both_databases(tmp_path: Path) -> None:
    from text_to_sql import task

    task.prepare(tmp_path)
    expected = {
        "query": "SELECT DISTINCT genre FROM tracks",
        "databases": [str(path) for path in task.databases(tmp_path)],
    }
    outputs = [
        "I think it is:\nSELECT genre FROM tracks GROUP BY genre",
        "SELECT genre FROM tracks",
        "SELECT genre FROM songs",
        "DELETE FROM tracks",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n",
        None,
    ]
    values, why = graded(
        "text_to_sql/grade.py:execution",
        output=outputs,
        expected=[json.dumps(expected)] * len(outputs),
    )
    assert values == [1, 0, 0, 0, 0, 0]
    assert why[0] is None
    assert why[1] == "returns 900 rows, expected 10"
    assert why[2] == "fails: no such table: songs"
    assert why[3] == "fails: attempt to write a readonly database"
    assert why[4] == "fails: interrupted"


def test_no_wrong_query_of_the_demonstrator_is_right_by_chance(tmp_path: Path) -> None:
    from text_to_sql import task

    task.prepare(tmp_path)
    databases = [str(path) for path in task.databases(tmp_path)]
    cases = [
        (wrong.format(kind.values[0]), kind.right.format(kind.values[0]))
        for kind in task.shop.KINDS
        for wrong in (*kind.wrong, kind.right)
    ]
    values, _ = graded(
        "text_to_sql/grade.py:execution",
        output=[wrong for wrong, _ in cases],
        expected=[json.dumps({"query": right, "databases": databases}) for _, right in cases],
    )
    assert values == [float(wrong == right) for wrong, right in cases]


def test_the_last_number_of_an_answer_counts() -> None:
    outputs = ["42", "3 boxes of 14: 42.0", "The result is 1,042.", "42 or 43", "no idea", ""]
    expected = ["42", "42", "1042", "42", "42", "42"]
    values, why = graded("calculator/grade.py:numeric", output=outputs, expected=expected)
    assert values == [1, 1, 1, 0, 0, 0]
    assert why[3:5] == ["expected 42, got 43", "expected 42, got no number"]


def test_a_name_counts_without_case_and_punctuation_and_passages_add_a_little() -> None:
    passages = ["Tarn is the capital of Norlund.", "Kril is the currency of Norlund."]
    expected = json.dumps({"answer": "Kril", "passages": passages})
    columns = {
        "output": ["the kril.", "Norlund", None, "Kril"],
        "expected": [expected] * 3 + [None],
        "tools": [
            [{"result": text} for text in found] for found in (passages, passages[:1], [], [])
        ],
    }
    values, why = graded("search/grade.py:answered", **columns)
    assert values == [1, 0, 0, None]
    assert why[1] == f"expected Kril, got Norlund; never found: {passages[1]}"
    shaped, _ = graded("search/grade.py:answered_and_found", **columns)
    assert shaped[:3] == pytest.approx([1.0, 0.05, 0.0])


def test_a_room_counts_if_it_is_the_best_and_the_first_ignored_need_is_named() -> None:
    expected = json.dumps({"room": "ramp-screen-8", "seats": 7, "needs": ["ramp", "screen"]})
    outputs = ["ramp-screen-8", "screen-8", "plain-4", "ramp-screen-12", "none", None]
    values, why = graded("room_booking/grade.py:booked", output=outputs, expected=[expected] * 6)
    assert values == [1, 0, 0, 0, 0, 0]
    assert why == [
        None,
        "ignored: ramp",
        "ignored: 7 people do not fit",
        "the room is larger or has more than needed; the best is ramp-screen-8",
        "no room was booked",
        "no room was booked",
    ]


def records(*said: tuple[str, str | None]) -> str:
    """Records as the proposing model sees them, of requests and what was ignored."""
    rows = [
        {"outcome": "failed" if ignored else "succeeded", "input": f"A room for 4 people; {what}."}
        | ({"explanations": f"booked 0: ignored: {ignored}"} if ignored else {})
        for what, ignored in said
    ]
    return "\n".join(json.dumps(row) for row in rows)


def test_the_writer_of_prompts_states_what_comes_with_a_failure_and_nothing_twice() -> None:
    from room_booking import writer

    seen = writer.records(
        records(
            *[("Ann shows slides; Bob uses a wheelchair", "ramp")] * 3,
            *[("Eve uses a wheelchair; Finn joins by a call", "ramp")] * 3,
            *[("Cem shows slides", "screen")] * 4,
            *[("Dora joins by a call; Cem shows slides", None)] * 4,
        )
    )
    ramp = "Ask for ramp if somebody uses a wheelchair."
    first, reason = writer.better("Book.", seen)
    assert (first, reason) == (f"Book.\n{ramp}", "The agent ignores ramp.")
    second, _ = writer.better(first, seen)
    assert second == f"{first}\nAsk for screen if somebody shows slides."
    other, _ = writer.better("Book.", seen, tried=[first])
    assert other == "Book.\nAsk for screen if somebody shows slides."
    nothing, _ = writer.better("Book.", writer.records(records(("Ann shows slides", None))))
    assert nothing == "Book.\nBe polite."


WORKED = """
async def answer(task):
    if task["question"] == "?":
        raise ValueError("I do not know")
    return task["question"] * 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["serve", "url"])
def test_an_agent_stays_in_one_process_and_its_errors_are_outcomes(
    way: str, tmp_path: Path
) -> None:
    from otel_lightning.learner.rollout_runner import Grading, Job, run_agent
    from shared.rollouts import Agent, agent_server, ingesting

    (tmp_path / "agent.py").write_text(WORKED)
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "a", "question": "x"}\n{"id": "b", "question": "?"}'
    )
    agent, store = Agent(tmp_path / "agent.py", Path(sys.executable)), tmp_path / "traces.duckdb"
    tasks, grading = tmp_path / "tasks.jsonl", Grading(by_exit_code=True)
    with ingesting(store):
        if way == "serve":
            report = run_agent(store, Job(tasks, serve=agent.worker, name="w"), grading)
        else:
            with agent_server(agent, store, "http://127.0.0.1:9") as url:
                report = run_agent(store, Job(tasks, url=url, name="w"), grading)
        with open_store(store) as opened:
            rows = opened.query("SELECT task_id, status, output, reason FROM attempts ORDER BY 1")
    assert report.statuses == {"ok": 1, "failed": 1}
    right, wrong = rows.to_pylist()
    assert (right["status"], right["output"]) == ("ok", "xx")
    assert wrong["status"] == "failed"
    assert "I do not know" in wrong["reason"]


def environment_of(name: str) -> Path:
    """The interpreter of an example's environment, which is made if need be."""
    from shared.environment import MissingPackagesError, python_for

    try:
        return python_for(EXAMPLES / name / "requirements.txt")
    except MissingPackagesError as missing:
        pytest.skip(f"the framework cannot be installed here: {missing}")


def answer_of(
    name: str, task: dict[str, Any], *script: Message, **variables: str
) -> tuple[str, list[Message]]:
    """Run an agent as its users do, in its own environment, against a model that is a script."""
    with scripted_model(*script) as (url, requests):
        process = subprocess.run(
            [environment_of(name), EXAMPLES / name / "agent.py"],
            input=json.dumps(task),
            env={**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", **variables},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout.strip(), requests


@pytest.mark.slow
def test_the_query_is_rewritten_until_the_check_finds_it_correct(tmp_path: Path) -> None:
    from text_to_sql import task

    task.prepare(tmp_path)
    right = "SELECT count(*) FROM tracks"
    given = {"database": str(task.databases(tmp_path)[0]), "question": "How many tracks?"}
    script = [
        text_message("SELECT count(*) FROM songs"),
        text_message("wrong"),
        text_message(right),
        text_message("correct"),
    ]
    output, requests = answer_of("text_to_sql", given, *script)
    assert output == right
    said = [request["messages"][-1]["content"] for request in requests]
    assert said[1].endswith("SELECT count(*) FROM songs\nError: no such table: songs")
    assert said[3].endswith(f"{right}\n900")


@pytest.mark.slow
def test_the_calculator_calculates_and_runs_no_code() -> None:
    given = {"question": "What is 3 times 4, plus 1?"}
    script = [calls("calculator", expression="3 * 4 + 1"), text_message("It is 13.")]
    output, requests = answer_of("calculator", given, *script)
    assert output == "It is 13."
    assert requests[1]["messages"][-1]["content"] == "13"
    script[0] = calls("calculator", expression="__import__('os').getpid()")
    _, requests = answer_of("calculator", given, *script)
    assert "only numbers" in requests[1]["messages"][-1]["content"]


@pytest.mark.slow
def test_a_search_finds_the_passage_that_fits_best(tmp_path: Path) -> None:
    from search import task

    task.prepare(tmp_path)
    one = task.questions()[0]
    given = {"corpus": str(task.corpus(tmp_path)), "question": one.text}
    first = calls("search", query=f"{one.kind.known} {one.known}")
    second = calls("search", query=f"{one.kind.wanted} {one.country}")
    output, requests = answer_of("search", given, first, second, text_message(one.answer))
    assert output == one.answer
    found = [request["messages"][-1]["content"] for request in requests[1:]]
    assert found == [
        f"{one.known} is the {one.kind.known} of {one.country}.",
        f"{one.answer} is the {one.kind.wanted} of {one.country}.",
    ]


@pytest.mark.slow
def test_a_room_is_booked_by_the_prompt_that_the_flag_file_serves(tmp_path: Path) -> None:
    flag = {
        "state": "ENABLED",
        "defaultVariant": "b",
        "variants": {"a": "Book.", "b": "Book well."},
    }
    flags = tmp_path / "flags.json"
    flags.write_text(json.dumps({"flags": {"booking-prompt": flag}}))
    given = {"request": "A room for 7 people; Ann uses a wheelchair."}
    script = [calls("book", seats=7, needs="ramp")]
    served = {"FLAGD_OFFLINE_FLAG_SOURCE_PATH": str(flags)}
    output, requests = answer_of("room_booking", given, *script, **served)
    assert output == "ramp-8"
    assert requests[0]["messages"][0]["content"] == "Book well."
    output, requests = answer_of("room_booking", given, calls("book", seats="many"))
    assert output == "none"
    assert requests[0]["messages"][0]["content"] == "You book meeting rooms."
