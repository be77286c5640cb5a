"""What other trace stores export, read back as the spans that they were sent.

The files in `tests/data/exports` were exported by real stores, which had been sent recordings of
`tests/data`. Where no store can be run here, the test converts a recording as the store documents
it. In both cases the recording itself tells what has to be read from the export.
"""

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.captures import as_texts
from support.exports import (
    EXPORTS,
    GOOD,
    Json,
    Sent,
    blob_row,
    derived,
    observation,
    parsed,
    sent,
    spans,
    without,
)

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.exports import REQUEST_BYTES
from otel_lightning.collector.trace_files.read import read_file

DATA = Path(__file__).parents[2] / "data"
NAMES = st.sampled_from(
    [
        *("data", "id", "trace_id", "traceId", "traceID", "span_id", "type", "run_type", "name"),
        *("startTime", "start_time", "dataType", "source", "key", "score", "run_id", "info"),
        *("spans", "processes", "context", "span_kind", "attributes", "annotator_kind", "batches"),
        *("trace", "result", "resourceSpans", "observations", "timestamp", "sessionId", "userId"),
    ]
)
"""Names of fields of other stores' records, so that random JSON looks like them."""

# Phoenix, MLflow and LangSmith: recorded ------------------------------------------------------

PHOENIX = [EXPORTS / "phoenix" / f"{kind}_annotations.json" for kind in ("span", "trace")]


@pytest.mark.parametrize("spans_of", ["spans.json", "otlp.json"])
def test_phoenix_gives_back_what_it_was_sent(spans_of: str, tmp_path: Path) -> None:
    originals = [DATA / "openinference_openai/tool.otlp.pb", DATA / "pydantic_ai/tool.otlp.pb"]
    expected = derived(tmp_path / "sent.duckdb", *originals)
    # Annotations of spans name no trace, so the order of the files does not matter.
    found = derived(tmp_path / "export.duckdb", *PHOENIX, EXPORTS / "phoenix" / spans_of)
    assert found[:2] == expected[:2]
    annotated = json.loads(PHOENIX[0].read_bytes())["data"][0]["span_id"]
    call = next(one for one in found.calls if one["span_id"] == annotated)
    told = {"source": "feedback", "trace_id": call["trace_id"]}
    right = {"name": "correct", "value": 1.0, "label": "yes", "explanation": "The sum is right."}
    half = {"name": "helpful", "value": 0.5, "label": None, "explanation": None}
    assert found.rewards == [
        {**told, **right, "span_id": annotated},
        {**told, **half, "span_id": None},
    ]


def test_an_annotation_of_an_unknown_span_is_counted(tmp_path: Path) -> None:
    found = derived(tmp_path / "export.duckdb", *PHOENIX)
    assert [one["name"] for one in found.rewards] == ["helpful"]
    assert found.left_out == [
        "a judgement of a span that is not in the store; load its span too",
    ]


def test_mlflow_gives_back_what_it_was_sent(tmp_path: Path) -> None:
    originals = [DATA / "mlflow" / f"{name}.otlp.pb" for name in ("tool", "streams")]
    expected = derived(tmp_path / "sent.duckdb", *originals)
    found = derived(tmp_path / "export.duckdb", EXPORTS / "mlflow" / "traces.jsonl")
    assert found.calls == expected.calls
    # MLflow's server makes a text of the number 5 that a tool returned.
    assert [without(one, "result") for one in found.tools] == [
        without(one, "result") for one in expected.tools
    ]
    assert [(one["name"], one["value"], one["label"]) for one in found.rewards] == [
        ("tone", 0.25, None), ("grade", None, "good"), ("helpful", 1.0, None),
    ]  # fmt: skip
    assert found.left_out == ["an expectation of MLflow, which is no reward"]


@pytest.mark.parametrize(
    ("word", "score"), [("yes", 1.0), ("No", 0.0), ("unknown", None), ("good", None)]
)
def test_words_of_mlflows_judges_count_as_mlflow_counts_them(
    word: str, score: float | None, tmp_path: Path
) -> None:
    text = (EXPORTS / "mlflow" / "traces.jsonl").read_text()
    assert '"value": "good"' in text
    judged = tmp_path / "traces.jsonl"
    judged.write_text(text.replace('"value": "good"', f'"value": "{word}"'))
    found = derived(tmp_path / "export.duckdb", judged)
    (grade,) = [one for one in found.rewards if one["name"] == "grade"]
    assert (grade["value"], grade["label"]) == (score, word)


def test_feedback_of_langsmith_keeps_its_score_and_its_word(tmp_path: Path) -> None:
    file = EXPORTS / "langsmith" / "feedback.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    (verdict,) = [row for row in rows if row["key"] == "verdict"]
    scored = tmp_path / "feedback.jsonl"
    scored.write_text(json.dumps(verdict | {"score": 0.5}) + "\n")
    files = [EXPORTS / "langsmith" / "runs.jsonl.gz", scored]
    (found,) = derived(tmp_path / "export.duckdb", *files).rewards
    assert (found["value"], found["label"]) == (0.5, "pass")


def test_langsmith_gives_back_what_its_own_exporter_sends(tmp_path: Path) -> None:
    """Compare with what the same process sent by OTLP, where ids of spans are drawn at random."""
    files = [EXPORTS / "langsmith" / name for name in ("runs.jsonl.gz", "feedback.jsonl")]
    expected = derived(tmp_path / "sent.duckdb", EXPORTS / "langsmith" / "sent.pb.gz")
    found = derived(tmp_path / "export.duckdb", *files)

    def comparable(rows: list[Json]) -> list[Json]:
        # The exporter writes `langchain` for the provider; the run knows better.
        ids = ("trace_id", "span_id", "parent_span_id", "llm_span_id", "provider")
        return sorted((without(one, *ids) for one in rows), key=repr)

    assert comparable(found.calls) == comparable(expected.calls)
    # The exporter writes `{}` for the result of a tool that failed; the messages have its error.
    assert comparable([one for one in found.tools if not one["error_type"]]) == comparable(
        [one for one in expected.tools if not one["error_type"]]
    )
    assert len(found.tools) == len(expected.tools)
    assert {one["provider"] for one in found.calls} == {"openai"}
    first = min(found.calls, key=lambda one: one["start_time"])
    assert [(one["name"], one["value"], one["label"]) for one in found.rewards] == [
        ("tone", 0.25, None), ("helpful", 1.0, None), ("verdict", None, "pass"),
    ]  # fmt: skip
    assert found.rewards[0]["span_id"] == first["span_id"]
    parents = {one["parent_span_id"] for one in found.calls}
    assert None not in parents


# Jaeger and Tempo -----------------------------------------------------------------------------


def jaeger(recording: Path) -> Json:
    """Convert as OpenTelemetry specifies in "OpenTelemetry to Jaeger Transformation"."""
    found = list(spans(recording))
    processes = {f"p{n}": one.resource for n, one in enumerate(found)}

    def tags(texts: Json) -> list[Json]:
        return [{"key": key, "type": "string", "value": value} for key, value in texts.items()]

    def one(number: int, sent: Sent) -> Json:
        span = sent.span
        status = {1: "OK", 2: "ERROR"}.get(span.status.code)
        fields = {
            "span.kind": Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            "otel.scope.name": sent.scope,
            **({"otel.status_code": status} if status else {}),
            "otel.status_description": span.status.message,
        }
        parent = {"refType": "CHILD_OF", "traceID": span.trace_id.hex()}
        parents = [{**parent, "spanID": span.parent_span_id.hex()}] if span.parent_span_id else []
        return {
            "traceID": span.trace_id.hex(),
            "spanID": span.span_id.hex(),
            "operationName": span.name,
            "references": parents,
            "startTime": span.start_time_unix_nano // 1000,
            "duration": (span.end_time_unix_nano - span.start_time_unix_nano) // 1000,
            "tags": tags({**as_texts(span.attributes), **fields}),
            "logs": [
                {
                    "timestamp": event.time_unix_nano // 1000,
                    "fields": tags({"event": event.name, **as_texts(event.attributes)}),
                }
                for event in span.events
            ],
            "processID": f"p{number}",
        }

    return {
        "data": [
            {
                "traceID": trace.hex(),
                "spans": [one(n, s) for n, s in enumerate(found) if s.span.trace_id == trace],
                "processes": {
                    name: {"serviceName": told.get("service.name", ""), "tags": tags(told)}
                    for name, told in processes.items()
                },
            }
            for trace in {one.span.trace_id for one in found}
        ]
    }


def tempo(recording: Path) -> Json:
    """Convert by protobuf's own JSON mapping, which Tempo's answer is in: base64, enum names."""
    return {"batches": MessageToDict(sent(recording))["resourceSpans"]}


def tempo_v2(recording: Path) -> Json:
    return {"trace": MessageToDict(sent(recording)), "metrics": {}}


@pytest.mark.parametrize("convert", [jaeger, tempo, tempo_v2])
@pytest.mark.parametrize(
    "recording",
    ["pydantic_ai/tool", "openinference_openai/tool", "traceloop_openai_legacy/tool"],
)
def test_stores_of_spans_give_back_what_they_were_sent(
    convert: Any, recording: str, tmp_path: Path
) -> None:
    original = DATA / f"{recording}.otlp.pb"
    export = tmp_path / "export.json"
    export.write_text(json.dumps(convert(original)))
    expected = derived(tmp_path / "sent.duckdb", original)
    assert expected.calls
    assert derived(tmp_path / "export.duckdb", export) == expected


def test_otlp_with_ids_in_base64_is_read(tmp_path: Path) -> None:
    """Raindrop's SDK sends such JSON; the file holds the bodies of its requests."""
    folder = DATA / "js_raindrop"
    expected = derived(tmp_path / "sent.duckdb", folder / "tool.otlp.pb")
    found = derived(tmp_path / "json.duckdb", folder / "tool.requests.jsonl")
    assert found == expected
    assert len(found.calls) == 4
    assert {len(one["trace_id"]) for one in found.calls} == {32}


# Langfuse -------------------------------------------------------------------------------------


def pages(recording: Path) -> Json:
    return {"data": [observation(one) for one in spans(recording)], "meta": {"page": 1}}


def lines(recording: Path) -> str:
    """Convert to a file of the export to blob storage, one record a line."""
    return "\n".join(json.dumps(blob_row(observation(one))) for one in spans(recording))


def whole_trace(recording: Path) -> Json:
    found = [observation(one) for one in spans(recording)]
    trace = {"id": found[0]["traceId"], "timestamp": found[0]["startTime"]}
    return {**trace, "sessionId": None, "userId": None, "observations": found, "scores": []}


@pytest.mark.parametrize("convert", [pages, lines, whole_trace])
@pytest.mark.parametrize(
    "recording", ["langfuse/tool", "langfuse_langchain/tool", "langfuse_observe/parallel"]
)
def test_langfuse_gives_back_what_its_sdk_sent(
    convert: Any, recording: str, tmp_path: Path
) -> None:
    original = DATA / f"{recording}.otlp.pb"
    export, content = tmp_path / "export.json", convert(original)
    export.write_text(content if isinstance(content, str) else json.dumps(content))
    expected = derived(tmp_path / "sent.duckdb", original)
    assert expected.calls
    assert derived(tmp_path / "export.duckdb", export) == expected


def of_the_conventions(sent: Sent) -> Json:
    """Convert a span of another instrumentation as `OtelIngestionProcessor` does."""
    told = as_texts(sent.span.attributes)
    kind = {"chat": "GENERATION", "execute_tool": "TOOL", "invoke_agent": "AGENT"}
    arguments, result = (told.pop(f"gen_ai.tool.call.{n}", None) for n in ("arguments", "result"))
    asked, answered = (told.pop(f"gen_ai.{n}.messages", None) for n in ("input", "output"))
    system = parsed(told.pop("gen_ai.system_instructions", None)) or []
    messages = [{"role": "system", "parts": system}] if system else []
    counts = {side: told.get(f"gen_ai.usage.{side}_tokens") for side in ("input", "output")}
    return {
        **observation(sent),
        "type": kind.get(told.get("gen_ai.operation.name", ""), "SPAN"),
        "input": arguments or (asked and [*messages, *parsed(asked)]),
        "output": result or parsed(answered),
        "model": told.get("gen_ai.response.model"),
        "usageDetails": {side: int(count) for side, count in counts.items() if count},
        "metadata": {"attributes": told, "scope": {"name": sent.scope}},
    }


def test_langfuse_gives_back_what_another_instrumentation_sent(tmp_path: Path) -> None:
    original = DATA / "pydantic_ai" / "tool.otlp.pb"
    export = tmp_path / "export.json"
    export.write_text(json.dumps([of_the_conventions(one) for one in spans(original)]))
    expected, found = (
        derived(tmp_path / "a.duckdb", original),
        derived(tmp_path / "b.duckdb", export),
    )
    kept = (
        "span_id",
        "operation",
        "input_messages",
        "output_messages",
        "input_tokens",
        "output_tokens",
    )
    assert [[one[k] for k in kept] for one in found.calls] == [
        [one[k] for k in kept] for one in expected.calls
    ]
    kept = ("span_id", "llm_span_id", "name", "arguments", "result")
    assert [[one[k] for k in kept] for one in found.tools] == [
        [one[k] for k in kept] for one in expected.tools
    ]


SCORE = {"id": "s1", "name": "helpful", "source": "API", "traceId": "0" * 31 + "1"}
TIMES = {"timestamp": "2026-11-20T10:00:00Z", "updatedAt": "2026-11-20T10:00:01.5Z"}
V3 = {"kind": "observation", "id": "0" * 15 + "2", "traceId": "0" * 31 + "1"}


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({"dataType": "NUMERIC", "value": 0.5, "comment": "So so."}, (0.5, None, None, "So so.")),
        ({"dataType": "BOOLEAN", "value": 1, "stringValue": "True"}, (1.0, None, None, None)),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "good"},
         (None, "good", None, None)),
        ({"dataType": "NUMERIC", "value": 2, "observationId": V3["id"]},
         (2.0, None, V3["id"], None)),
        ({"dataType": "BOOLEAN", "value": True, "traceId": None, "subject": V3},
         (1.0, None, V3["id"], None)),
        ({"dataType": "CATEGORICAL", "value": "bad", "subject": V3}, (None, "bad", V3["id"], None)),
    ],
)  # fmt: skip
def test_a_score_of_langfuse_is_a_reward(score: Json, expected: Any, tmp_path: Path) -> None:
    export = tmp_path / "scores.json"
    export.write_text(json.dumps({"data": [{**SCORE, **TIMES, **score}], "meta": {}}))
    found = derived(tmp_path / "s.duckdb", export)
    columns = ("value", "label", "span_id", "explanation")
    assert [tuple(one[name] for name in columns) for one in found.rewards] == [expected]
    assert found.rewards[0]["trace_id"] == SCORE["traceId"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dataType": "TEXT", "value": "long"}, "a score of Langfuse of the type TEXT"),
        ({"dataType": "NUMERIC", "value": 1, "traceId": None, "sessionId": "s"}, "of a session"),
    ],
)
def test_a_score_that_is_no_reward_is_counted(change: Json, reason: str, tmp_path: Path) -> None:
    export = tmp_path / "scores.json"
    export.write_text(json.dumps([{**SCORE, **TIMES, **change}]))
    found = derived(tmp_path / "s.duckdb", export)
    assert (found.rewards, len(found.left_out)) == ([], 1)
    assert reason in found.left_out[0]


def test_a_later_export_replaces_a_changed_score(tmp_path: Path) -> None:
    files = []
    for number, (value, changed) in enumerate([(0.0, "10:00:01"), (1.0, "11:00:00")]):
        score = {**SCORE, "dataType": "NUMERIC", "value": value, "timestamp": TIMES["timestamp"]}
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps([{**score, "updatedAt": f"2026-11-20T{changed}Z"}]))
    for order in (files, files[::-1]):
        found = derived(tmp_path / f"{order[0].stem}.duckdb", *order)
        assert [one["value"] for one in found.rewards] == [1.0]


# Ids and faults -------------------------------------------------------------------------------


def test_other_ids_become_ids_of_opentelemetry() -> None:
    """Langfuse's SDK makes the same ids: `create_trace_id(seed=…)` and `_create_observation_id`."""
    seed = sha256(b"my-seed").hexdigest()
    assert records.trace_id("my-seed") == seed[:32]
    assert records.span_id("my-seed") == seed[:16]
    uuid = "01A21E26-2E47-712B-A55C-A967E5A47566"
    assert records.trace_id(uuid) == "01a21e262e47712ba55ca967e5a47566"
    assert records.span_id(uuid) == "a55ca967e5a47566"
    assert records.trace_id("XwL7xG2qZG+t8/VM8wGfpQ==") == "5f02fbc46daa646fadf3f54cf3019fa5"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"some": "thing"}, "neither OTLP"),
        ({**GOOD, "startTime": "yesterday"}, "a record of Langfuse cannot be read"),
        ({**GOOD, "startTime": None}, "a record of Langfuse cannot be read"),
        ({**SCORE, "dataType": "NUMERIC"}, "a record of Langfuse lacks 'value'"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(record: Json, message: str, tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    export.write_text(json.dumps(GOOD) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(ValueError, match=message) as told:
        read_file(export)
    assert str(told.value).startswith(f"{export}:2: ")


def test_large_spans_are_divided_into_requests_that_an_ingester_accepts(tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    spans = [{**GOOD, "id": str(n), "input": "x" * 5_000_000} for n in range(8)]
    export.write_text("\n".join(map(json.dumps, spans)))
    requests = read_file(export).requests
    assert max(len(one.body) for one in requests) <= REQUEST_BYTES
    found = [
        span.span_id
        for one in requests
        for group in ExportTraceServiceRequest.FromString(one.body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert [one.hex() for one in found] == [records.span_id(str(n)) for n in range(8)]


@pytest.mark.parametrize("depth", [200, 900])
def test_attributes_that_are_nested_too_deeply_are_refused(depth: int, tmp_path: Path) -> None:
    span = {
        "name": "n",
        "span_kind": "LLM",
        "context": {"trace_id": "t", "span_id": "s"},
        "start_time": GOOD["startTime"],
        "attributes": {"a": 0},
    }
    text = json.dumps(span).replace('{"a": 0}', '{"a": ' * depth + "0" + "}" * depth)
    export = tmp_path / "export.json"
    export.write_text(text)
    with pytest.raises(ValueError, match="cannot be read") as told:
        read_file(export)
    assert str(told.value).startswith(str(export))


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=9),
    max_leaves=30,
))  # fmt: skip
def test_any_json_is_read_or_refused_with_a_reason(document: Any) -> None:
    with TemporaryDirectory() as folder:
        export = Path(folder) / "export.json"
        export.write_text(json.dumps(document))
        reason = ""
        try:
            read_file(export)
        except ValueError as error:
            reason = str(error)
        assert not reason or reason.startswith(str(export))
