"""Tables that other trace stores export: CSV and Parquet, read as the spans that they were sent.

The files in `tests/data/exports` come from the real store or client. Where none can be run here,
the test converts a recording as the store documents it.
"""

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pyarrow import parquet
from support.captures import as_text, as_texts
from support.exports import (
    EXPORTS,
    GOOD,
    Derived,
    Json,
    blob_row,
    derived,
    observation,
    parsed,
    spans,
    without,
)

from otel_lightning.collector.load.from_files import load_file
from otel_lightning.collector.store import open_store
from otel_lightning.collector.trace_files import exports, read
from otel_lightning.collector.trace_files.read import read_file

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = ["langfuse/tool", "langfuse_langchain/tool", "langfuse_observe/parallel"]


def write_csv(path: Path, rows: Iterable[Json], write: Callable[[Any], str]) -> Path:
    """Write a table with a header, in which all cells are quoted."""
    listed = list(rows)
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(listed[0])
    writer.writerows([write(row.get(name)) for name in listed[0]] for row in listed)
    path.write_text(text.getvalue())
    return path


# ClickHouse: recorded -------------------------------------------------------------------------

CLICKHOUSE = EXPORTS / "clickhouse"
SENT_TO_CLICKHOUSE = ("pydantic_ai/tool", "openinference_openai/tool", "strands/tool")


LOGGED_TO_CLICKHOUSE = (
    *("contrib_openai_v2_true/tool", "js_otel_openai/tool", "otel_genai_openai_event/tool"),
)
LOGS = sorted(DATA.glob("*/*.logs.pb"))


@pytest.mark.parametrize(
    "export", sorted(CLICKHOUSE.glob("otel_traces*")), ids=lambda path: path.name
)
def test_clickhouse_gives_back_what_it_was_sent(export: Path, tmp_path: Path) -> None:
    originals = [DATA / f"{name}.otlp.pb" for name in SENT_TO_CLICKHOUSE]
    expected = derived(tmp_path / "sent.duckdb", *originals)
    assert len(expected.calls) > 5
    assert derived(tmp_path / "export.duckdb", export) == expected


@pytest.mark.parametrize(
    "export", sorted(CLICKHOUSE.glob("otel_logs*")), ids=lambda path: path.name
)
def test_clickhouse_gives_back_the_log_records_that_it_was_sent(
    export: Path, tmp_path: Path
) -> None:
    originals = [DATA / f"{name}.otlp.pb" for name in LOGGED_TO_CLICKHOUSE]
    logs = [DATA / f"{name}.logs.pb" for name in LOGGED_TO_CLICKHOUSE]
    expected = derived(tmp_path / "sent.duckdb", *originals, *logs)
    assert {call["content"] for call in expected.calls} == {"full"}
    found = derived(tmp_path / "export.duckdb", *originals, export)
    assert without_order(found) == without_order(expected)


def without_order(rows: Derived) -> Any:
    """Return rows with their JSON parsed: the exporter sorts the keys of objects."""
    return [
        {name: parsed(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in (*rows.calls, *rows.tools)
    ]


def logged_rows(recording: Path) -> list[Json]:
    """Convert log records as `pushLogsData` of the Collector's ClickHouse exporter does."""
    request = ExportLogsServiceRequest.FromString(recording.read_bytes())
    return [
        {
            "Timestamp": clickhouse_time(log.time_unix_nano or log.observed_time_unix_nano),
            "TraceId": log.trace_id.hex(),
            "SpanId": log.span_id.hex(),
            "TraceFlags": log.flags & 0xFF,
            "SeverityText": log.severity_text,
            "SeverityNumber": log.severity_number,
            "ServiceName": as_texts(group.resource.attributes).get("service.name", ""),
            "Body": as_text(log.body) or "",
            "ResourceSchemaUrl": group.schema_url,
            "ResourceAttributes": as_texts(group.resource.attributes),
            "ScopeSchemaUrl": scope.schema_url,
            "ScopeName": scope.scope.name,
            "ScopeVersion": scope.scope.version,
            "ScopeAttributes": as_texts(scope.scope.attributes),
            "LogAttributes": as_texts(log.attributes),
            "EventName": log.event_name,
        }
        for group in request.resource_logs
        for scope in group.scope_logs
        for log in scope.log_records
    ]


def clickhouse_time(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{nanoseconds % 1_000_000_000:09}"


@pytest.mark.parametrize("recording", LOGS, ids=lambda path: path.parent.name)
def test_a_table_of_logs_gives_back_what_was_sent(recording: Path, tmp_path: Path) -> None:
    spans_of = recording.with_name(recording.name.replace(".logs.", ".otlp."))
    originals = [spans_of] if spans_of.exists() else []
    expected = derived(tmp_path / "sent.duckdb", *originals, recording)
    export = tmp_path / "otel_logs.jsonl"
    export.write_text("\n".join(map(json.dumps, logged_rows(recording))))
    found = derived(tmp_path / "export.duckdb", export, *originals)
    assert without_order(found) == without_order(expected)
    assert found.rewards == expected.rewards


def test_log_records_of_no_span_are_loaded_too(tmp_path: Path) -> None:
    """Rows without ids, and spans between them, as a file of both tables has them."""
    row = logged_rows(DATA / "js_otel_openai" / "tool.logs.pb")[0]
    apart = row | {"TraceId": "", "SpanId": "", "EventName": "", "LogAttributes": {}}
    export = tmp_path / "both.jsonl"
    export.write_text("\n".join(map(json.dumps, [row, ROW, apart])))
    file = read_file(export)
    assert [(one.signal, one.records) for one in file.requests] == [
        ("logs", 1), ("traces", 1), ("logs", 1),
    ]  # fmt: skip
    with open_store(tmp_path / "t.duckdb") as store:
        load_file(store, export)
        logs = store.rows("SELECT trace_id, span_id, body, severity FROM logs ORDER BY trace_id")
    assert [(one["trace_id"], one["span_id"]) for one in logs] == [
        (row["TraceId"], row["SpanId"]), (None, None),
    ]  # fmt: skip
    assert {one["body"] for one in logs} == {row["Body"]}


# Phoenix and MLflow: recorded -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_table_of_phoenix_says_what_its_api_says(kind: str, tmp_path: Path) -> None:
    folder = EXPORTS / "phoenix"
    expected = derived(
        tmp_path / "api.duckdb", folder / "spans.json", folder / "span_annotations.json"
    )
    files = [folder / f"spans.{kind}", folder / f"span_annotations.{kind}"]
    found = derived(tmp_path / "table.duckdb", *files)
    assert found == expected
    assert len(found.rewards) == 1


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_table_of_mlflow_says_what_its_traces_say(kind: str, tmp_path: Path) -> None:
    folder = EXPORTS / "mlflow"
    expected = derived(tmp_path / "json.duckdb", folder / "traces.jsonl")
    assert derived(tmp_path / "table.duckdb", folder / f"traces.{kind}") == expected


# Langfuse and LangSmith: converted ------------------------------------------------------------


def cell(value: Any) -> str:
    """Write a value as `stringifyForCsv` of Langfuse does."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def cell_of_old(value: Any) -> str:
    """Write a value as Langfuse did before: texts in the quotes of JSON."""
    return "" if value is None else json.dumps(value)


def as_blob_csv(recording: Path, folder: Path) -> Path:
    rows = [blob_row(observation(one)) for one in spans(recording)]
    return write_csv(folder / "observations.csv", rows, cell)


def as_page_csv(recording: Path, folder: Path) -> Path:
    return write_csv(folder / "export.csv", map(observation, spans(recording)), cell)


def as_old_csv(recording: Path, folder: Path) -> Path:
    return write_csv(folder / "old.csv", map(observation, spans(recording)), cell_of_old)


def as_blob_parquet(recording: Path, folder: Path) -> Path:
    """Write Parquet as ClickHouse does of Langfuse's columns."""
    rows = [blob_row(observation(one)) for one in spans(recording)]
    for row in rows:
        row["metadata"] = [(key, cell(value)) for key, value in row["metadata"].items()]
        counts = row["usage_details"].items()
        row["usage_details"] = [(key, count) for key, count in counts if isinstance(count, int)]
    text = pa.string()
    kinds = {"metadata": pa.map_(text, text), "usage_details": pa.map_(text, pa.uint64())}
    kinds |= {name: pa.timestamp("us") for name in ("start_time", "end_time")}
    columns = {
        name: pa.array([row[name] for row in rows], pa.string()).cast(pa.timestamp("us"))
        if name.endswith("_time")
        else pa.array([row[name] for row in rows], kinds.get(name, pa.string()))
        for name in rows[0]
    }
    parquet.write_table(pa.table(columns), folder / "observations.parquet")
    return folder / "observations.parquet"


@pytest.mark.parametrize("convert", [as_blob_csv, as_page_csv, as_old_csv, as_blob_parquet])
@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_table_of_langfuse_gives_back_what_its_sdk_sent(
    convert: Callable[[Path, Path], Path], recording: str, tmp_path: Path
) -> None:
    original = DATA / f"{recording}.otlp.pb"
    expected = derived(tmp_path / "sent.duckdb", original)
    assert expected.calls
    assert derived(tmp_path / "export.duckdb", convert(original, tmp_path)) == expected


def test_scores_in_csv_are_rewards(tmp_path: Path) -> None:
    """Convert as the page of Langfuse exports the table of scores."""
    common = {"traceId": "0" * 31 + "1", "timestamp": "2026-11-20T10:00:00.000Z", "source": "API"}
    given = [
        {"dataType": "NUMERIC", "value": 0.5, "stringValue": None, "comment": 'He said "so, so".'},
        {"dataType": "CATEGORICAL", "value": 0, "stringValue": "good", "comment": None},
    ]
    rows = [{"id": f"s{n}", "name": "helpful", **common, **one} for n, one in enumerate(given)]
    found = derived(tmp_path / "s.duckdb", write_csv(tmp_path / "scores.csv", rows, cell))
    columns = ("value", "label", "explanation")
    assert [tuple(one[name] for name in columns) for one in found.rewards] == [
        (0.5, None, 'He said "so, so".'), (None, "good", None),
    ]  # fmt: skip


def test_the_bulk_export_of_langsmith_says_what_its_runs_say(tmp_path: Path) -> None:
    """Convert as LangSmith documents its bulk export: objects are JSON, times are timestamps."""
    runs = EXPORTS / "langsmith" / "runs.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(runs.read_bytes()).splitlines()]
    texts = ("id", "trace_id", "parent_run_id", "name", "run_type", "dotted_order", "error")
    objects = ("inputs", "outputs", "extra")
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in texts}
    for name in objects:
        written = [None if row.get(name) is None else json.dumps(row[name]) for row in rows]
        columns[name] = pa.array(written, pa.string())
    for name in counts:
        columns[name] = pa.array([row.get(name) for row in rows], pa.int64())
    for name in ("start_time", "end_time"):
        times = pa.array([row[name].removesuffix("Z") for row in rows])
        columns[name] = times.cast(pa.timestamp("us"))
    export = tmp_path / "runs.parquet"
    parquet.write_table(pa.table(columns), export, compression="zstd")
    expected = derived(tmp_path / "json.duckdb", runs)
    found = derived(tmp_path / "table.duckdb", export)
    assert found == expected
    assert found.calls


# Amazon Bedrock: converted --------------------------------------------------------------------

BEDROCK = DATA / "openinference_bedrock" / "modes.otlp.pb"
COMPARED = (
    *("operation", "provider", "request_model", "input_messages", "output_messages"),
    *("finish_reason", "input_tokens", "output_tokens", "tool_definitions", "request_params"),
    *("error_type", "content"),
)


def invocations(recording: Path) -> list[Json]:
    """Return the records of Bedrock's log of the calls that OpenInference recorded.

    It keeps the messages in `input.value`, and the rest of the request beside it.
    """
    found = []
    for number, one in enumerate(spans(recording)):
        told = {pair.key: pair.value for pair in one.span.attributes}
        if "output.value" not in told:
            continue
        body: Json = {"messages": json.loads(told["input.value"].string_value)}
        if told["llm.input_messages.0.message.role"].string_value == "system":
            key = "llm.input_messages.0.message.contents.0.message_content.text"
            body["system"] = [{"text": told[key].string_value}]
        tools = [
            json.loads(value.string_value)
            for key, value in told.items()
            if key.startswith("llm.tools.")
        ]
        if tools:
            body["toolConfig"] = {"tools": tools}
        if "llm.invocation_parameters" in told:
            parameters = told["llm.invocation_parameters"].string_value
            body["inferenceConfig"] = json.loads(parameters)
        counts = [told[f"llm.token_count.{n}"].int_value for n in ("prompt", "completion")]
        found.append(
            {
                "schemaType": "ModelInvocationLog",
                "schemaVersion": "1.0",
                "timestamp": f"2026-11-20T10:{number // 60:02}:{number % 60:02}Z",
                "accountId": "123456789012",
                "identity": {"arn": "arn:aws:iam::123456789012:user/agent"},
                "region": "us-east-1",
                "requestId": f"915a6a04-3f83-4c70-a277-7fbf7ea5{number:04x}",
                "operation": "Converse",
                "modelId": told["llm.model_name"].string_value,
                "input": {
                    "inputContentType": "application/json",
                    "inputBodyJson": body,
                    "inputTokenCount": counts[0],
                },
                "output": {
                    "outputContentType": "application/json",
                    "outputBodyJson": {
                        "output": {"message": json.loads(told["output.value"].string_value)},
                        "stopReason": told["llm.finish_reason"].string_value,
                        "metrics": {"latencyMs": 302},
                        "usage": {"inputTokens": counts[0], "outputTokens": counts[1]},
                    },
                    "outputTokenCount": counts[1],
                },
            }
        )
    return found


def compared(rows: Derived) -> list[Json]:
    """Return the calls without what the instrumentation wrote for the text of arguments."""
    ordered = sorted(rows.calls, key=lambda one: one["start_time"])
    found = [{name: one[name] for name in COMPARED} for one in ordered if not one["error_type"]]
    for one in found:
        for side in ("input_messages", "output_messages"):
            one[side] = json.loads(one[side])
            for message in one[side]:
                message["parts"] = [without(part, "arguments_raw") for part in message["parts"]]
    return found


def test_the_log_of_bedrock_has_the_calls_that_an_instrumentation_recorded(tmp_path: Path) -> None:
    export = tmp_path / "20261120T100000000Z_0123456789abcdef.json.gz"
    lines = "\n".join(map(json.dumps, invocations(BEDROCK)))
    export.write_bytes(gzip.compress(lines.encode()))
    expected = derived(tmp_path / "sent.duckdb", BEDROCK)
    found = derived(tmp_path / "export.duckdb", export)
    assert len(compared(found)) > 3
    assert compared(found) == compared(expected)
    # The results of tools are in the next request, so the calls of a conversation are one rollout.
    assert [(one["name"], one["arguments"], one["result"]) for one in found.tools]


MODEL = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-4"
ASKED = {
    "anthropic_version": "bedrock-2023-05-31",
    "max_tokens": 100,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "The weather in Oslo?"}],
    "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
}
TOOL_USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
ANSWERED = {
    "id": "msg_1",
    "model": "claude-4",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "Let me look."}, TOOL_USE],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 3},
}
STREAMED = [
    {"type": "message_start", "message": {**ANSWERED, "content": [], "stop_reason": None,
        "usage": {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " look."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**TOOL_USE, "input": {}}},
    {"type": "content_block_delta", "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"city": '}},
    {"type": "content_block_delta", "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '"Oslo"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"invocationLatency": 900}},
]  # fmt: skip
CALL = {
    "schemaType": "ModelInvocationLog",
    "timestamp": "2026-11-20T10:00:00Z",
    "requestId": "915a6a04-3f83-4c70-a277-7fbf7ea546b3",
    "modelId": MODEL,
}


def bedrock(tmp_path: Path, **record: Any) -> Derived:
    export = tmp_path / "log.json"
    export.write_text(json.dumps({**CALL, **record}))
    return derived(tmp_path / "t.duckdb", export)


@pytest.mark.parametrize(
    ("operation", "answered"),
    [("InvokeModel", ANSWERED), ("InvokeModelWithResponseStream", STREAMED)],
)
def test_an_answer_of_anthropic_is_read_whole_or_streamed(
    operation: str, answered: Any, tmp_path: Path
) -> None:
    sides = {"input": {"inputBodyJson": ASKED}, "output": {"outputBodyJson": answered}}
    (call,) = bedrock(tmp_path, operation=operation, **sides).calls
    assert call["request_model"] == "us.anthropic.claude-4"
    assert (call["response_id"], call["response_model"]) == ("msg_1", "claude-4")
    assert (call["input_tokens"], call["output_tokens"]) == (12, 7)
    assert (call["finish_reason"], call["content"]) == ("tool_calls", "full")
    (message,) = json.loads(call["output_messages"])
    assert [part["type"] for part in message["parts"]] == ["text", "tool_call"]
    assert message["parts"][0]["content"] == "Let me look."
    assert message["parts"][1]["arguments"] == {"city": "Oslo"}
    assert [one["role"] for one in json.loads(call["input_messages"])] == ["system", "user"]


def test_what_the_caller_told_bedrock_names_the_rollout(tmp_path: Path) -> None:
    sides = {"input": {"inputBodyJson": ASKED}, "output": {"outputBodyJson": ANSWERED}}
    (call,) = bedrock(tmp_path, requestMetadata={"session.id": "talk 7"}, **sides).calls
    assert call["conversation_id"] == "talk 7"


def test_a_failed_invocation_is_a_call_with_its_error(tmp_path: Path) -> None:
    sides = {"input": {"inputBodyJson": ASKED}, "output": {}}
    (call,) = bedrock(tmp_path, errorCode="ThrottlingException", **sides).calls
    assert (call["error_type"], call["response_id"]) == ("ThrottlingException", None)


# Faults ---------------------------------------------------------------------------------------

ROW = {
    "TraceId": "0" * 31 + "1",
    "SpanId": "0" * 15 + "1",
    "SpanName": "chat",
    "Timestamp": "2026-11-20 10:00:00.000000123",
    "Duration": "5",
    "SpanAttributes": "{'gen_ai.operation.name':'chat'}",
    "ResourceAttributes": "{}",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Timestamp": "noon"}, ", row 2: a record of ClickHouse cannot be read"),
        ({"Duration": "long"}, ", row 2: a record of ClickHouse cannot be read"),
        ({"SpanAttributes": "none"}, ", row 2: a record of ClickHouse cannot be read .attributes"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(change: Json, message: str, tmp_path: Path) -> None:
    export = write_csv(tmp_path / "t.csv", [ROW, ROW | change], str)
    with pytest.raises(ValueError, match=message) as told:
        read_file(export)
    assert str(told.value).startswith(str(export))


def test_a_table_without_a_column_names_it(tmp_path: Path) -> None:
    export = write_csv(tmp_path / "t.csv", [without(ROW, "Duration")], str)
    with pytest.raises(ValueError, match=r", row 1: a record of ClickHouse lacks 'Duration'"):
        read_file(export)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "city,weather\nOslo,sun\n",
            "is a table, but no export of .* columns are city, weather",
        ),
        ("city,weather\n", "is a table without rows"),
        ("city,weather\nOslo\n", "a row has 1 cells, but there are 2 columns"),
        ('city,weather\nOslo,"sun', "the CSV is damaged or cut off"),
    ],
)
def test_a_table_that_is_no_export_is_named(text: str, message: str, tmp_path: Path) -> None:
    export = tmp_path / "t.csv"
    export.write_text(text)
    with pytest.raises(ValueError, match=message) as told:
        read_file(export)
    assert str(told.value).startswith(str(export))


def test_parquet_that_is_cut_off_is_named(tmp_path: Path) -> None:
    whole = (CLICKHOUSE / "otel_traces.parquet").read_bytes()
    export = tmp_path / "t.parquet"
    export.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="the Parquet file is damaged or cut off"):
        read_file(export)


def test_a_compressed_table_that_is_cut_off_stores_nothing(tmp_path: Path) -> None:
    rows = [
        ROW | {"SpanId": f"{n:016x}", "SpanName": f"n{n * 7919}"}
        for n in range(1, 3 * exports.RECORDS_AT_ONCE)
    ]
    whole = gzip.compress(write_csv(tmp_path / "t.csv", rows, str).read_bytes())
    export = tmp_path / "t.csv.gz"
    export.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match="the compressed file is damaged or cut off"):
        read_file(export)


COLUMNS = st.sampled_from(
    [
        *ROW, *("ParentSpanId", "SpanKind", "StatusCode", "Events.Timestamp", "Events.Name"),
        *("Links.TraceId", "context.trace_id", "context.span_id", "span_kind", "start_time"),
        *("attributes.llm.model_name", "events", "trace", "spans", "id", "trace_id", "run_type"),
        *("inputs", "extra", "schemaType", "requestId", "modelId", "timestamp", "input"),
    ]
)  # fmt: skip
CELLS = st.sampled_from(
    ["", "{", "[1]", "{'a':", "{'a': {}}", "[{'b': nan}]", "[None]", "2026-11-20", "Error"]
) | st.text(max_size=8)


@given(st.lists(COLUMNS, min_size=2, max_size=20), st.lists(CELLS, min_size=20, max_size=20))
def test_any_table_is_read_or_refused_with_a_reason(names: list[str], cells: list[str]) -> None:
    with TemporaryDirectory() as folder:
        text = io.StringIO()
        csv.writer(text).writerows([names, cells[: len(names)]])
        export = Path(folder) / "t.csv"
        export.write_bytes(text.getvalue().encode(errors="replace"))
        reason = ""
        try:
            read_file(export)
        except ValueError as error:
            reason = str(error)
        assert not reason or reason.startswith(str(export))


# Large files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_above_the_limit_is_read_again_to_be_stored(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [ROW | {"SpanId": f"{n:016x}"} for n in range(1, 2_501)]
    export = tmp_path / f"t.{kind}"
    if kind == "csv":
        write_csv(export, rows, str)
    else:
        export.write_text("\n".join(map(json.dumps, rows)))
    kept = read_file(export)
    monkeypatch.setattr(read, "KEPT_BYTES", 100_000)
    again = read_file(export)
    assert not isinstance(again.requests, list)
    assert list(again.requests) == list(kept.requests) == list(again.requests)
    per_request = math.ceil(2_500 / exports.RECORDS_AT_ONCE)
    assert (again.records, len(list(again.requests))) == (2_500, per_request)


@pytest.mark.parametrize("count", [1, 3])
def test_json_lines_of_any_number_are_read(count: int, tmp_path: Path) -> None:
    export = tmp_path / "t.jsonl"
    lines = [json.dumps({**GOOD, "id": str(n)}) for n in range(count)]
    export.write_text("\n" + "\n\n".join(lines) + "\n\n")
    assert read_file(export).records == count


@pytest.mark.parametrize("first", [b"{", b"[", b","])
def test_protobuf_that_begins_like_a_text_is_read(first: bytes, tmp_path: Path) -> None:
    """The second byte of a request is the length of its first resource."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = b"t" * 16, b"s" * 8
    span.name = "n" * (ord(first) - len(request.resource_spans[0].SerializeToString()) - 2)
    data = request.SerializeToString()
    assert data.startswith(b"\n" + first)
    export = tmp_path / "t.pb"
    export.write_bytes(data)
    assert read_file(export).records == 1


def test_a_document_of_several_lines_is_read(tmp_path: Path) -> None:
    export = tmp_path / "t.json"
    export.write_text(json.dumps([GOOD, {**GOOD, "id": "b"}], indent=2))
    assert read_file(export).records == 2
