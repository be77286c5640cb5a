"""The support desk: its tasks, its model, its agent and its grader."""

import http.server
import json
import os
import random
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grade
import pytest
from chat import CHAT_TEMPLATE
from demo import Demo, Rate, how_to_look
from lines import read_lines, write_lines
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from support.late import Late
from support.running import background, finish, serving, written_by
from tasks import RIGHT_ACTIONS, all_tasks, choose_tasks, key_line, task_line
from tools import ACTIONS, run_tool

agent: Any = Late("agent")  # which imports openai


def test_the_same_seed_draws_the_same_tasks() -> None:
    assert choose_tasks(50, seed=3) == choose_tasks(50, seed=3)
    assert choose_tasks(50, seed=3) != choose_tasks(50, seed=4)


def test_no_held_out_task_is_ever_drawn_for_training() -> None:
    train = {task for seed in range(20) for task in choose_tasks(300, seed)}
    held_out = {task for seed in range(20) for task in choose_tasks(300, seed, "held-out")}
    assert not {task.task_id for task in train} & {task.task_id for task in held_out}
    assert not {(t.request, t.case) for t in train} & {(t.request, t.case) for t in held_out}


def test_both_splits_hold_every_case() -> None:
    for split in ("train", "held-out"):
        assert len({task.case for task in all_tasks() if task.split == split}) == 5 * 4


def test_every_action_is_right_in_some_case() -> None:
    assert {action for row in RIGHT_ACTIONS.values() for action in row} == set(ACTIONS)


def test_the_agents_tasks_do_not_hold_their_answers() -> None:
    lines = json.dumps([task_line(task) for task in all_tasks()])
    assert not [action for action in ACTIONS if action in lines]


def test_too_many_tasks_are_refused_with_the_number_there_are() -> None:
    with pytest.raises(ValueError, match=r"Cannot draw 1000 tasks: 'train' holds 1 to 637\."):
        choose_tasks(1000, seed=0)


def test_an_oracle_scores_full_marks_on_every_task() -> None:
    keys = {task.task_id: key_line(task) for task in all_tasks()}
    answers = [oracle_answer(task_line(task)) for task in all_tasks()]
    assert all(grade.grade(answers, keys))


def oracle_answer(task: dict[str, Any]) -> dict[str, Any]:
    """Work from what the agent sees, and a rule book written out once more, by case."""
    (order,) = task["cases"]
    arguments = {"order": order}
    case = run_tool("lookup", arguments, task["cases"])["case"]
    action, text = RULE_BOOK[case]
    actions = [{"name": name, "arguments": arguments} for name in ("lookup", action)]
    return {"task_id": task["task_id"], "actions": actions, "text": text.format(order)}


REFUND = ("refund_order", "Order {} is refunded.")
REPLACE = ("replace_item", "A new item for order {} is on its way.")
CANCEL = ("cancel_order", "Order {} is cancelled.")
TRACE = ("trace_parcel", "We are tracing order {}.")
CREDIT = ("give_credit", "A voucher for order {} is yours.")
CALL = ("escalate", "A colleague will call about order {}.")
RULE_BOOK = {
    "refund-packed": CANCEL,
    "refund-shipped": CALL,
    "refund-delivered": REFUND,
    "refund-lost": REFUND,
    "broken-packed": REPLACE,
    "broken-shipped": CREDIT,
    "broken-delivered": REPLACE,
    "broken-lost": CALL,
    "missing-packed": CREDIT,
    "missing-shipped": TRACE,
    "missing-delivered": CALL,
    "missing-lost": REPLACE,
    "mistake-packed": REPLACE,
    "mistake-shipped": TRACE,
    "mistake-delivered": CREDIT,
    "mistake-lost": REFUND,
    "cancel-packed": CANCEL,
    "cancel-shipped": TRACE,
    "cancel-delivered": CALL,
    "cancel-lost": REFUND,
}


@pytest.mark.parametrize(
    "change",
    [
        {"actions": []},
        {"actions": [("refund_order", "A11")]},
        {"actions": [("lookup", "A12"), ("refund_order", "A11")]},
        {"actions": [("lookup", "A11"), ("refund_order", "A12")]},
        {"actions": [("lookup", "A11"), ("escalate", "A11")]},
        {"actions": [("lookup", "A11"), ("refund_order", "A11"), ("refund_order", "A11")]},
        {"text": "Order A12 is refunded."},
        {"text": None},
    ],
)
def test_an_answer_wrong_in_one_thing_fails(change: dict[str, Any]) -> None:
    key = {"order": "A11", "action": "refund_order", "text": "Order A11 is refunded."}
    right = {"actions": [("lookup", "A11"), ("refund_order", "A11")], "text": key["text"]}
    assert grade.is_success(as_answer(right), key)
    assert not grade.is_success(as_answer(right | change), key)


def as_answer(answer: dict[str, Any]) -> dict[str, Any]:
    calls = [{"name": name, "arguments": {"order": order}} for name, order in answer["actions"]]
    return answer | {"actions": calls}


def test_the_model_is_small_and_samples_by_default(beginner: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(beginner)
    assert model.num_parameters() < 1_000_000
    assert model.generation_config.do_sample
    assert AutoTokenizer.from_pretrained(beginner).chat_template == CHAT_TEMPLATE


def test_the_demonstrator_errs_least_when_told_to_be_careful() -> None:
    import model as desk_model

    rng = random.Random(0)  # noqa: S311 - a demonstrator's whims, not cryptography
    tasks, share = choose_tasks(400, seed=0), {}
    for variant in desk_model.system_prompts():
        done = [desk_model.demonstrate(task, variant, "", rng) for task in tasks]
        actions = [answer[4]["tool_calls"][0]["function"]["name"] for answer in done]
        right = [task.action == action for task, action in zip(tasks, actions, strict=True)]
        share[variant] = sum(right) / len(tasks)
    assert share["brief"] + 0.1 < share["friendly"] < share["careful"] - 0.1


def test_the_agent_answers_every_ticket_and_a_seed_repeats_it(
    desk: Any, server: Any, tmp_path: Path
) -> None:
    tasks = choose_tasks(6, seed=0)
    write_lines(tmp_path / "tasks.jsonl", map(task_line, tasks))
    first = answer_tickets(desk, server, tmp_path, "--workers", 1)
    again = answer_tickets(desk, server, tmp_path, "--workers", 4)
    assert Counter(row["task_id"] for row in first) == {task.task_id: 3 for task in tasks}
    assert len({row.pop("response_id") for row in first + again}) == 2 * 3 * len(tasks)
    assert first == again
    used = {action["name"] for row in first for action in row["actions"]}
    assert "lookup" in used


def answer_tickets(desk: Any, server: Any, folder: Path, *options: object) -> list[dict[str, Any]]:
    answers = folder / "answers.jsonl"
    files = ("--tasks", folder / "tasks.jsonl", "--answers", answers)
    desk.run("agent.py", *files, "--attempts", 3, *options, **server.environment)
    return read_lines(answers)


def test_an_agent_refused_by_its_server_fails_and_says_why(
    desk: Any, server: Any, tmp_path: Path
) -> None:
    write_lines(tmp_path / "tasks.jsonl", map(task_line, choose_tasks(2, seed=0)))
    finished = desk.start(
        "agent.py",
        *("--tasks", tmp_path / "tasks.jsonl", "--answers", tmp_path / "a.jsonl"),
        *("--model", "other"),
        **server.environment,
    )
    assert finished.returncode == 1
    errors = [row["error"] for row in read_lines(tmp_path / "a.jsonl")]
    assert len(errors) == 2
    assert all("Unknown model 'other'" in error for error in errors)


@pytest.mark.parametrize(
    ("line", "says"),
    [('{"task_id"', r"tasks:2: not JSON"), ("[]", "tasks:2: not a JSON object"), ("{}", "no 'a'")],
)
def test_a_damaged_line_is_named_by_its_number(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "tasks"
    path.write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=says):
        read_lines(path, "a")


@pytest.mark.parametrize("text", ["", "{", "[1]", '"A11"', "null"])
def test_arguments_that_make_no_sense_are_no_arguments(text: str) -> None:
    assert agent.read_arguments(text) == {}
    assert "error" in run_tool("lookup", {}, {"A11": "refund-lost"})


def test_the_flag_file_gives_each_prompt_the_propensity_it_states() -> None:
    import model as desk_model

    flag = json.loads(desk_model.FLAGS.read_text())["flags"]["support-prompt"]
    client = agent.open_flags(desk_model.FLAGS)
    contexts = [EvaluationContext(targeting_key=f"ticket-{n}") for n in range(3000)]
    served = [client.get_string_details("support-prompt", "", context) for context in contexts]
    api.shutdown()
    count = Counter(details.variant for details in served)
    for variant in flag["variants"]:
        stated = flag["metadata"][f"lightning.propensity.{variant}"]
        # Five standard errors of a share of 3,000 draws.
        assert count[variant] / 3000 == pytest.approx(stated, abs=0.043)
    assert {details.value for details in served} == set(flag["variants"].values())


@pytest.mark.slow
def test_the_trained_model_does_better_the_more_careful_its_prompt(
    desk: Any, tmp_path: Path
) -> None:
    import model as desk_model

    desk.run("model.py", "--output", tmp_path / "base")
    tasks = choose_tasks(50, seed=0, split="held-out")
    keys = {task.task_id: key_line(task) for task in tasks}
    write_lines(tmp_path / "tasks.jsonl", map(task_line, tasks))
    flags, share = json.loads(desk_model.FLAGS.read_text()), {}
    with desk.serve(tmp_path / "base") as server:
        for variant in desk_model.ACCURACY:
            flags["flags"]["support-prompt"]["targeting"] = {"fractional": [[variant, 1]]}
            (tmp_path / "flags.json").write_text(json.dumps(flags))
            options = ("--workers", 4, "--flags", tmp_path / "flags.json")
            successes = grade.grade(answer_tickets(desk, server, tmp_path, *options), keys)
            share[variant] = sum(successes) / len(successes)
    # Three standard errors of a difference between shares of 150 attempts are about 0.16.
    assert 0 < share["brief"] < share["careful"] - 0.16
    assert share["brief"] < share["friendly"] < share["careful"] < 1


class Collector(http.server.BaseHTTPRequestHandler):
    """Keep what is posted: what any OTLP receiver gets to see."""

    received: list[ExportLogsServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(ExportLogsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[http.server.ThreadingHTTPServer]:
    Collector.received = []
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    with serving(listener):
        yield listener


def graded_files(folder: Path) -> tuple[object, ...]:
    tasks = choose_tasks(2, seed=0)
    right, wrong = (oracle_answer(task_line(task)) for task in tasks)
    write_lines(folder / "key.jsonl", map(key_line, tasks))
    answers = [right | {"response_id": "r-1"}, wrong | {"response_id": "r-2", "text": "No."}]
    write_lines(folder / "answers.jsonl", answers)
    return ("--answers", folder / "answers.jsonl", "--key", folder / "key.jsonl")


def test_grades_arrive_as_evaluation_events(
    desk: Any, collector: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    printed = desk.run("grade.py", *graded_files(tmp_path), **variables)
    assert printed.startswith("success 1/2\n")
    (request,) = Collector.received
    records = request.resource_logs[0].scope_logs[0].log_records
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    assert [attributes_of(record) for record in records] == [
        {
            "gen_ai.evaluation.name": "task_success",
            "gen_ai.evaluation.score.value": value,
            "gen_ai.evaluation.score.label": label,
            "gen_ai.response.id": response_id,
            "lightning.task.id": task.task_id,
        }
        for task, value, label, response_id in zip(
            choose_tasks(2, seed=0), (1.0, 0.0), ("pass", "fail"), ("r-1", "r-2"), strict=True
        )
    ]


def attributes_of(record: Any) -> dict[str, Any]:
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value")) for item in record.attributes
    }


def test_an_unreachable_collector_is_said_in_a_sentence(desk: Any, tmp_path: Path) -> None:
    finished = desk.start(
        "grade.py",
        *graded_files(tmp_path),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )
    assert finished.returncode == 1
    assert "The collector did not take the grades (0 of 2 were sent)." in finished.stderr
    assert "Traceback" not in finished.stderr


def test_interval_of_a_rate_holds_the_true_one_though_attempts_at_a_task_are_alike() -> None:
    rng = random.Random(0)  # noqa: S311 - no secret
    held = held_by_rollouts = 0
    for _ in range(500):
        # A task is easy or hard: half of them nearly always succeed, half nearly never.
        easy = [rng.random() < 0.5 for _ in range(60)]
        drawn = [[float(rng.random() < (0.95 if one else 0.05)) for _ in range(3)] for one in easy]
        low, high = Rate({str(i): rewards for i, rewards in enumerate(drawn)}).interval()
        held += low <= 0.5 <= high
        flat = [reward for rewards in drawn for reward in rewards]
        low, high = Rate({str(i): [reward] for i, reward in enumerate(flat)}).interval()
        held_by_rollouts += low <= 0.5 <= high
    assert 0.93 * 500 <= held <= 0.97 * 500
    assert held_by_rollouts < 0.85 * 500  # as if each attempt was a task of its own


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_interval_of_a_rate_without_a_failure_counts_tasks_and_not_attempts(reward: float) -> None:
    once, thrice = (Rate({str(i): [reward] * n for i in range(40)}).interval() for n in (1, 3))
    assert once == thrice
    assert once[1] - once[0] == pytest.approx(0.0876, abs=1e-3)  # z**2 / (n + z**2)


def test_the_demo_ends_with_commands_that_show_its_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how_to_look(Demo(tmp_path, collector=""))
    printed = capsys.readouterr().out.splitlines()
    serve, look = (shlex.split(line[2:]) for line in printed if line.startswith("$ "))
    free = {"LIGHTNING_HTTP": "127.0.0.1:0", "LIGHTNING_GRPC": "127.0.0.1:0"}
    with background(*serve, env=os.environ | free) as process:
        http = json.loads(written_by(process, tmp_path / "traces.duckdb.server"))["http"]
        opened = finish(*look, env=os.environ | {"LIGHTNING_NO_BROWSER": "true"}, check=True)
    assert opened.stdout.startswith(f"http://{http}/ui/")
