"""`lightning-ingest derive --rebuild` while the ingester runs."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_client import column
from support.running import Ingester, cli_here, eventually, join
from support.sending import post

from otel_lightning.collector.derive.batches.large_traces import LARGE_SPANS
from otel_lightning.collector.load.from_files import start_anew
from otel_lightning.collector.store import open_store

STALE = "SELECT count(*) FROM stale"


def calls(numbers: range) -> bytes:
    """Model calls of one trace."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in numbers:
        span = spans.add(name="chat", trace_id=b"t" * 16, span_id=number.to_bytes(8))
        span.start_time_unix_nano, span.end_time_unix_nano = number, number + 1
        for key in ("gen_ai.operation.name", "gen_ai.request.model"):
            span.attributes.add(key=key).value.string_value = "chat"
    return request.SerializeToString()


@contextmanager
def growing(ingester: Ingester, first: int) -> Iterator[None]:
    """Send more calls of the trace for the block, then wait until all are stored and derived."""
    over = threading.Event()
    acknowledged: list[int] = []

    def send() -> None:
        for number in itertools.count(first):
            if over.is_set():
                return
            assert post(ingester.http, calls(range(number, number + 1))) == 200
            acknowledged.append(number)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        join(sender)
    eventually(lambda: column(ingester.store, "SELECT count(*) FROM spans") == acknowledged[-1:])
    eventually(lambda: column(ingester.store, STALE) == [0])


def test_a_large_trace_that_grows_has_all_its_rows_after_a_rebuild(ingester: Ingester) -> None:
    assert post(ingester.http, calls(range(1, LARGE_SPANS + 1))) == 200
    counted = "SELECT count(*) FROM llm_calls"
    eventually(lambda: column(ingester.store, counted)[0] == LARGE_SPANS)
    with growing(ingester, LARGE_SPANS + 1):
        eventually(lambda: column(ingester.store, counted)[0] > LARGE_SPANS)
        with open_store(ingester.store) as store:
            start_anew(store)
    assert column(ingester.store, counted) == column(ingester.store, "SELECT count(*) FROM spans")
    result = cli_here("derive", "--rebuild", "--store", str(ingester.store))
    assert (result.returncode, result.stderr) == (0, "")
    assert column(ingester.store, counted) == column(ingester.store, "SELECT count(*) FROM spans")
    assert cli_here("check", "--deep", "--store", str(ingester.store)).returncode == 0
