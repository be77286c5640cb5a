"""Feedback by HTTP: one reward an id, early or late, whatever it names, whatever happens."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from support.otlp_client import JSON, PROTOBUF, Reply, column, send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli_here, eventually

from otel_lightning.collector.receive.feedback import read_feedback
from otel_lightning.collector.store import open_store

TRACE, SPAN = b"t" * 16, b"s" * 8
GOOD = {"id": "1", "rollout_id": "r", "value": 1}


def judge(ingester: Ingester, judgements: Any, **headers: str) -> Reply:
    body = judgements if isinstance(judgements, bytes) else json.dumps(judgements).encode()
    return send(ingester.http, body, path="/v1/feedback", Content_Type=JSON, **headers)


def rewards(ingester: Ingester, columns: str = "name, value, rollout_id") -> list[tuple[Any, ...]]:
    with open_store(ingester.store, read_only=True) as store:
        rows = store.query(f"SELECT {columns} FROM rewards ORDER BY ALL").to_pylist()
    return [tuple(row.values()) for row in rows]


def call(response_id: str) -> bytes:
    """Return a request with one model call of rollout `r7`."""
    request = trace_request("chat", trace_id=TRACE, span_id=SPAN)
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": response_id,
        "lightning.rollout.id": "r7",
    }
    for key, value in attributes.items():
        span = request.resource_spans[0].scope_spans[0].spans[0]
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def test_a_judgement_is_a_reward_and_a_log_record(ingester: Ingester) -> None:
    said = {"name": "helpful", "value": 0.5, "label": "so-so", "explanation": "too long"}
    when = {"time": "2026-01-02T03:04:05+00:00"}
    reply = judge(ingester, {"id": "1", "rollout_id": "r7", "task_id": "t1", **said, **when})
    assert (reply.status, json.loads(reply.body)) == (200, {"stored": 1, "rejected": []})
    eventually(lambda: len(rewards(ingester)) == 1)
    shown = 'rollout_id, name, value, label, explanation, source, epoch("time")::BIGINT'
    expected = ("r7", "helpful", 0.5, "so-so", "too long", "feedback", 1767323045)
    assert rewards(ingester, shown) == [expected]
    assert column(ingester.store, "SELECT event_name FROM logs") == ["gen_ai.evaluation.result"]


NAMED = [
    {"response_id": "resp-1"},
    {"trace_id": TRACE.hex()},
    {"trace_id": TRACE.hex().upper(), "span_id": SPAN.hex()},
    {"rollout_id": "r7"},
]


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["early", "late"])
def test_it_finds_what_it_judges_before_or_after_that_came(
    order: tuple[int, int], ingester: Ingester
) -> None:
    judgements = [{"id": str(n), "value": n, **named} for n, named in enumerate(NAMED)]
    steps = [
        lambda: judge(ingester, judgements),
        lambda: send(ingester.http, call("resp-1")),
    ]
    for number in order:
        assert steps[number]().status == 200
        eventually(lambda: column(ingester.store, "SELECT count(*) FROM stale") == [0])
    expected = [("primary", float(n), "r7") for n in range(len(NAMED))]
    eventually(lambda: rewards(ingester) == expected)


def test_of_one_id_there_is_one_reward_and_the_last_received_counts(ingester: Ingester) -> None:
    send(ingester.http, call("resp-1"))
    loose, traced = {"id": "loose", "rollout_id": "r7"}, {"id": "traced", "trace_id": TRACE.hex()}
    later = {"time": "2099-01-02T03:04:05Z"}
    for said in ({"value": 1, **later}, {"value": 1, **later}, {"value": -1}):
        assert judge(ingester, [{**loose, **said}, {**traced, **said}]).status == 200
        eventually(lambda: column(ingester.store, "SELECT count(*) FROM stale") == [0])
    both = [{**loose, "id": "twice", "value": value} for value in (2, 3)]
    assert json.loads(judge(ingester, both).body)["stored"] == 2
    expected = [("primary", value, "r7") for value in (-1.0, -1.0, 3.0)]
    eventually(lambda: rewards(ingester) == expected)
    assert ingester.stop() == 0
    assert cli_here("derive", "--rebuild", "--store", str(ingester.store)).returncode == 0
    assert rewards(ingester) == expected


def test_what_is_wrong_is_named_and_affects_no_neighbour(ingester: Ingester) -> None:
    items = [GOOD, {**GOOD, "id": "2", "value": "high"}, 7, {**GOOD, "id": "3", "value": 2}]
    answer = json.loads(judge(ingester, items).body)
    assert answer["stored"] == 2
    assert [(one["index"], one["id"]) for one in answer["rejected"]] == [(1, "2"), (2, None)]
    assert answer["rejected"][0]["reason"] == "value must be a number, got 'high'."
    eventually(lambda: rewards(ingester, "value") == [(1.0,), (2.0,)])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": float("nan")}, "value must be finite, got 'nan'"),
        ({"value": float("-inf")}, "value must be finite, got '-inf'"),
        ({"value": 10**400}, "value must be finite"),
        ({"value": "1"}, "value must be a number, got '1'"),
        ({"value": True}, "value must be a number, got 'True'"),
        ({"value": None}, "value and label are missing: give one of them"),
        ({"id": None}, "id is missing"),
        ({"id": 7}, "id must be a string, got '7'"),
        ({"label": ["pass"]}, "label must be a string"),
        ({"name": "\ud800"}, "name is not valid Unicode"),
        (
            {"rollout_id": None},
            "it does not name the judged object: give one of rollout_id, trace_id",
        ),
        ({"span_id": "ab" * 8}, "span_id needs its trace_id"),
        ({"trace_id": "ab"}, "trace_id must be 32 hex digits, got 'ab'"),
        ({"trace_id": "0" * 32}, "trace_id must not be all zero"),
        ({"time": "2026-01-02T03:04:05"}, "time must be ISO 8601 with a zone"),
        ({"time": 7}, "time must be ISO 8601"),
        ({"time": "9999-01-02T03:04:05Z"}, "time must lie between the years 1970 and 2262"),
        ({"vlaue": 1}, "unknown field 'vlaue'. Known: id, name, value, label"),
    ],
)
def test_a_judgement_that_makes_no_sense_is_refused_with_the_reason(
    change: dict[str, Any], reason: str
) -> None:
    read = read_feedback(json.dumps({**GOOD, **change}).encode(), 1)
    assert (read.stored, len(read.refused)) == (0, 1)
    assert reason in read.refused[0].reason


def test_a_body_that_is_no_list_of_judgements_is_answered_400(ingester: Ingester) -> None:
    for body in (b"", b"{", b"7", b"[" * 100_000, b"\xff\xff\xff"):
        reply = judge(ingester, body)
        reason = json.loads(reply.body)["message"]
        assert (reply.status, "not feedback in JSON" in reason) == (400, True)


def test_it_is_guarded_and_limited_like_everything_else(starter: Callable[..., Ingester]) -> None:
    ingester = starter("--token", "open-sesame", "--max-body", "1")
    token = {"Authorization": "Bearer open-sesame"}
    packed = gzip.compress(json.dumps(GOOD).encode())
    large = json.dumps({**GOOD, "explanation": "x" * (1 << 20)}).encode()
    assert judge(ingester, GOOD).status == 401
    assert judge(ingester, GOOD, **token, Host="evil.test").status == 403
    assert judge(ingester, GOOD, **token, Origin="http://evil.test").status == 403
    assert judge(ingester, large, **token).status == 413
    assert judge(ingester, gzip.compress(large), **token, Content_Encoding="gzip").status == 413
    assert send(ingester.http, path="/v1/feedback", Content_Type=PROTOBUF, **token).status == 415
    assert send(ingester.http, path="/v1/feedback", method="GET", **token).status == 405
    assert judge(ingester, packed, **token, Content_Encoding="gzip").status == 200
    eventually(lambda: len(rewards(ingester)) == 1)


def test_what_was_acknowledged_survives_kill_9_at_once(starter: Callable[[], Ingester]) -> None:
    ingester = starter()
    for number in range(20):
        assert judge(ingester, {**GOOD, "id": str(number), "value": number}).status == 200
    ingester.kill()
    again = starter()
    eventually(lambda: rewards(again, "value") == [(float(number),) for number in range(20)])


def test_any_sender_of_log_records_can_give_an_id(ingester: Ingester) -> None:
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add().scope_logs.add().log_records
    record = logs.add(event_name="gen_ai.evaluation.result", time_unix_nano=1)
    record.attributes.add(key="lightning.feedback.id").value.string_value = "mine"
    record.attributes.add(key="lightning.rollout.id").value.string_value = "r"
    score = record.attributes.add(key="gen_ai.evaluation.score.value").value
    for value in (1.0, 0.0):
        score.double_value = value
        record.observed_time_unix_nano += 1
        send(ingester.http, request.SerializeToString(), path="/v1/logs")
    eventually(lambda: rewards(ingester, "value, source") == [(0.0, "feedback")])
