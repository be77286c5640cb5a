"""Recordings that are delivered span by span, and the tables that are derived from them."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request
from otel_lightning.collector.refresh.time_ranges.recent_traces import recent_traces
from otel_lightning.collector.store import Store, open_store
from support.made_rollouts import deliver

DATA = Path(__file__).parents[1] / "data"
RECORDED = ("js_otel_openai/tool", "agentlightning/tool", "openinference_openai/tool")
SPLIT = ("logfire/stream_tool", "traceloop_anthropic/error_gather")
"""Recordings in which two traces record one call, without an id that they share."""
CAPTURES = RECORDED + SPLIT
TABLES = ("llm_calls", "tool_calls", "agent_runs", "rewards", "arms", "rollouts", "unread_spans")
DAY_NS = 86_400_000_000_000
FAR_NS = 2**62
"""A time in the far future, Unix nanoseconds."""


def remember_wrong_times(store: Store) -> None:
    """Let a store remember of its stale traces that their spans came in the far future."""
    stale = store.query("SELECT id FROM stale WHERE kind = 'trace'")["id"].to_pylist()
    recent = recent_traces(store)
    recent.clear()
    recent.arrived(stale, [True] * len(stale), FAR_NS)


def single_requests(capture: str) -> Iterator[Request]:
    """Cut what an exporter sent into requests of one span or log record each."""
    spans = DATA / f"{capture}.otlp.pb"
    sent = ExportTraceServiceRequest.FromString(spans.read_bytes())
    for group in sent.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                one = ExportTraceServiceRequest()
                inside = one.resource_spans.add(resource=group.resource)
                inside.scope_spans.add(scope=scope.scope, spans=[span])
                yield Request("traces", 1, one.SerializeToString())
    logs = DATA / f"{capture}.logs.pb"
    if logs.exists():
        yield from single_logs(ExportLogsServiceRequest.FromString(logs.read_bytes()))


def single_logs(sent: ExportLogsServiceRequest) -> Iterator[Request]:
    for group in sent.resource_logs:
        for scope in group.scope_logs:
            for record in scope.log_records:
                one = ExportLogsServiceRequest()
                inside = one.resource_logs.add(resource=group.resource)
                inside.scope_logs.add(scope=scope.scope, log_records=[record])
                yield Request("logs", 1, one.SerializeToString())


def judgement(response_id: str) -> Request:
    """Return a reward that names a response and comes as a log record without a trace."""
    sent = ExportLogsServiceRequest()
    record = sent.resource_logs.add().scope_logs.add().log_records.add()
    record.event_name, record.time_unix_nano = "gen_ai.evaluation.result", DAY_NS
    record.attributes.add(key="gen_ai.response.id").value.string_value = response_id
    record.attributes.add(key="gen_ai.evaluation.name").value.string_value = "solved"
    record.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 1.0
    return Request("logs", DAY_NS, sent.SerializeToString())


def tables(store: Store, names: Sequence[str] = TABLES) -> dict[str, list[str]]:
    # `added_at` is the time at which a row was written.
    select = "SELECT COLUMNS(name -> name <> 'added_at') FROM {}"
    return {name: sorted(map(str, store.query(select.format(name)).to_pylist())) for name in names}


def derived_from(deliveries: Sequence[Sequence[Request]]) -> dict[str, list[str]]:
    with TemporaryDirectory() as folder, open_store(Path(folder) / "t.duckdb") as store:
        for requests in deliveries:
            deliver(store, Path(folder), *requests)
        return tables(store)


SENT = list(chain.from_iterable(map(single_requests, CAPTURES)))
WITH_REWARD = [*SENT, judgement("chatcmpl-late")]


@cache
def expected() -> dict[str, list[str]]:
    return derived_from([WITH_REWARD])
