"""Whatever bytes arrive: what can be read comes out of SQL as it went in, the rest is refused."""

import base64
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.captures import is_text_of
from support.examples import by_profile, examples
from support.otlp_client import column
from support.running import Ingester, eventually
from support.sending import post

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.decoding.decode import decode
from otel_lightning.collector.otlp.json_encoding import parse_json
from otel_lightning.collector.store import Store, open_store

COLUMNS = "trace_id, span_id, name, kind, start_time, end_time, status_code, attributes, events"
KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


def array(items: list[AnyValue]) -> AnyValue:
    value = AnyValue()
    value.array_value.values.extend(items)
    return value


def kv(items: list[KeyValue]) -> AnyValue:
    value = AnyValue()
    value.kvlist_value.values.extend(items)
    return value


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=3)


def pairs(of: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[KeyValue]:
    return st.builds(KeyValue, key=texts, value=of)


texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "\0", "'", '"', "gen_ai.request.model", "gen_ai.usage.input_tokens", "\U0010ffff"]
)
numbers = st.integers(-(2**63), 2**63 - 1)
values: st.SearchStrategy[AnyValue] = st.recursive(
    st.one_of(
        st.builds(AnyValue, string_value=texts),
        st.builds(AnyValue, int_value=numbers),
        st.builds(AnyValue, bool_value=st.booleans()),
        st.builds(AnyValue, double_value=st.floats(allow_nan=False, allow_infinity=False)),
        st.builds(AnyValue, bytes_value=st.binary(max_size=5)),
        st.just(AnyValue()),
    ),
    lambda inner: lists(inner).map(array) | lists(pairs(inner)).map(kv),
    max_leaves=6,
)
times = st.one_of(st.just(0), st.integers(1, 2**63 - 1), st.integers(2**63, 2**64 - 1))
ids = {
    size: st.binary(min_size=size, max_size=size) | st.sampled_from([b"", bytes(size), b"abc"])
    for size in (8, 16)
}


spans = st.builds(
    Span,
    trace_id=ids[16],
    span_id=ids[8],
    parent_span_id=ids[8],
    name=texts,
    kind=st.integers(0, 9),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    flags=st.integers(0, 2**32 - 1),
    trace_state=texts,
    attributes=st.lists(pairs(values), max_size=5),
    events=st.lists(
        st.builds(
            Span.Event,
            name=texts,
            time_unix_nano=times,
            attributes=st.lists(pairs(values), max_size=2),
        ),
        max_size=2,
    ),
    links=st.lists(st.builds(Span.Link, trace_id=ids[16], span_id=ids[8]), max_size=2),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("fuzz") / "traces.duckdb") as opened:
        yield opened


def request(sent: list[Span]) -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.extend(sent)
    return message


def valid(span: Span) -> bool:
    return all(len(i) == n and any(i) for i, n in ((span.trace_id, 16), (span.span_id, 8)))


def said(row: list[tuple[str, str | None]], sent: Any) -> bool:
    """Whether stored attributes are those that were sent, the last of equal keys."""
    last = {item.key: item.value for item in sent}
    stored = dict(row)
    return stored.keys() == last.keys() and all(is_text_of(stored[k], v) for k, v in last.items())


def nanoseconds(stored: Any) -> int:
    return 0 if stored is None else int(stored.value)


def known(sent: int) -> int:
    """A time as the store can say it: what exceeds 63 bits is unknown."""
    return sent if sent < 2**63 else 0


@examples(120)
@given(st.lists(spans, max_size=4))
def test_what_goes_in_comes_out_of_sql(
    store: Store, tmp_path_factory: Any, sent: list[Span]
) -> None:
    store.execute("DELETE FROM spans; DELETE FROM rejected")
    folder = tmp_path_factory.getbasetemp()
    load(store, [Request("traces", 1, request(sent).SerializeToString())], dead_letters=folder)
    good: dict[tuple[str, str], Span] = {}
    for span in filter(valid, sent):
        good.setdefault((span.trace_id.hex(), span.span_id.hex()), span)
    rows = store.query(f"SELECT {COLUMNS} FROM spans").to_pylist()
    assert {(row["trace_id"], row["span_id"]) for row in rows} == good.keys()
    assert len(rows) == len(good)
    reasons = store.query("SELECT reason FROM rejected")["reason"].to_pylist()
    repeated = [reason for reason in reasons if reason.startswith("repeated ids")]
    assert len(reasons) - len(repeated) == len(sent) - sum(map(valid, sent))
    copies = [s for s in filter(valid, sent) if s != good[s.trace_id.hex(), s.span_id.hex()]]
    assert len(repeated) <= len(copies), "an equal copy is no repeated id"
    for row in rows:
        assert_same(row, good[row["trace_id"], row["span_id"]])


def assert_same(row: dict[str, Any], span: Span) -> None:
    assert row["name"] == span.name
    assert row["kind"] == (KINDS[span.kind] if span.kind < len(KINDS) else str(span.kind))
    assert nanoseconds(row["start_time"]) == known(span.start_time_unix_nano)
    assert nanoseconds(row["end_time"]) == known(span.end_time_unix_nano)
    assert said(row["attributes"], span.attributes)
    assert [event["name"] for event in row["events"]] == [event.name for event in span.events]
    for stored, event in zip(row["events"], span.events, strict=True):
        assert nanoseconds(stored["time"]) == known(event.time_unix_nano)
        assert said(stored["attributes"], event.attributes)


def example(chance: random.Random) -> ExportTraceServiceRequest:
    """A request with something of everything."""
    span = Span(trace_id=chance.randbytes(16), span_id=chance.randbytes(8), name="näme", kind=3)
    span.start_time_unix_nano = chance.getrandbits(63)
    for number, value in enumerate((AnyValue(int_value=-1), AnyValue(double_value=math.pi))):
        span.attributes.add(key=f"k{number}", value=value)
    span.attributes.append(KeyValue(key="deep", value=array([kv([KeyValue(key="a")]), array([])])))
    span.events.add(name="e", time_unix_nano=5).attributes.add(key="x").value.bool_value = True
    span.links.add(trace_id=bytes(16), span_id=b"12345678")
    message = request([span, span])
    message.resource_spans[0].resource.attributes.add(key="service.name").value.string_value = "s"
    return message


def damage(body: bytes, chance: random.Random) -> bytes:
    """Change, drop, repeat or cut some bytes."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        piece = data[at : at + chance.randint(1, 9)]
        choice = chance.randrange(5)
        if choice == 0:
            data[at : at + 1] = chance.randbytes(1)
        elif choice == 1:
            del data[at : at + len(piece)]
        elif choice == 2:
            data[at:at] = piece * chance.randint(1, 3)
        elif choice == 3:
            data[at:at] = chance.randbytes(chance.randint(1, 12))
        else:
            del data[at:]
        if not data:
            return b""
    return bytes(data)


def as_json(message: ExportTraceServiceRequest) -> bytes:
    """The request in OTLP/JSON: protobuf's own, but ids are hex."""
    tree = MessageToDict(message, use_integers_for_enums=True)
    for span in tree["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId"):
            span[key] = base64.b64decode(span[key]).hex()
    return json.dumps(tree).encode()


def only_value_errors(read: Callable[[bytes], object], body: bytes) -> None:
    try:
        read(body)
    except ValueError:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} for {body!r}") from error


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (ExportTraceServiceRequest.SerializeToString, lambda body: decode("traces", [body], [1])),
        (ExportTraceServiceRequest.SerializeToString, lambda body: decode("logs", [body], [1])),
        (as_json, lambda body: parse_json(ExportTraceServiceRequest, body)),
        (as_json, lambda body: parse_json(ExportLogsServiceRequest, body)),
    ],
    ids=["traces", "logs", "json traces", "json logs"],
)
def test_damaged_bytes_raise_nothing_but_value_errors(
    write: Callable[[Any], bytes], read: Callable[[bytes], object]
) -> None:
    chance = random.Random(7)  # noqa: S311  the same damage every time
    whole = write(example(chance))
    deadline = time.monotonic() + by_profile(quick=0.25, thorough=3.0)
    while time.monotonic() < deadline:
        only_value_errors(read, damage(whole, chance))


@pytest.mark.parametrize("depth", [50, 99, 101, 5000])
def test_deep_nesting_raises_nothing_but_value_errors(depth: int) -> None:
    text = '{"arrayValue":{"values":[' * depth + '{"intValue":1}' + "]}}" * depth
    ids_ = f'"traceId":"{"0a" * 16}","spanId":"{"0b" * 8}"'
    span = f'{{{ids_},"attributes":[{{"key":"k","value":{text}}}]}}'
    body = f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}'.encode()
    only_value_errors(lambda body: parse_json(ExportTraceServiceRequest, body), body)
    value = AnyValue(int_value=1).SerializeToString()
    for _ in range(depth):
        value = field(5, field(1, value))
    attribute = field(9, field(1, b"k") + field(2, value))
    wire = field(1, field(2, field(2, field(1, b"t" * 16) + field(2, b"s" * 8) + attribute)))
    only_value_errors(lambda body: decode("traces", [body], [1]), wire)


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def test_requests_after_any_other_request_are_stored(ingester: Ingester) -> None:
    chance = random.Random(11)  # noqa: S311  the same damage every time
    whole = example(chance).SerializeToString()
    for path in ("/v1/traces", "/v1/logs"):
        answers = {post(ingester.http, damage(whole, chance), path) for _ in range(150)}
        assert answers <= {200, 400}
    last = Span(trace_id=b"t" * 16, span_id=b"s" * 8, name="after all that")
    assert post(ingester.http, request([last]).SerializeToString()) == 200
    find = "SELECT count(*) FROM spans WHERE name = 'after all that'"
    eventually(lambda: column(ingester.store, find) == [1])
    assert ingester.stop() == 0


def test_a_body_that_cannot_be_decoded_affects_no_other(store: Store, tmp_path: Path) -> None:
    chance = random.Random(13)  # noqa: S311  the same damage every time
    store.execute("DELETE FROM spans; DELETE FROM rejected")
    bodies = [request([Span(trace_id=b"t" * 16, span_id=bytes([n] * 8), name="good")])
              .SerializeToString() for n in range(1, 41)]  # fmt: skip
    broken = [b"\x0a\xff" + chance.randbytes(9) for _ in range(20)]
    mixed = chance.sample([*bodies, *broken], 60)
    load(store, [Request("traces", n, body) for n, body in enumerate(mixed)], dead_letters=tmp_path)
    names = store.query("SELECT name FROM spans")["name"].to_pylist()
    assert names.count("good") == 40
    kept = store.query("SELECT file FROM rejected WHERE file IS NOT NULL")["file"].to_pylist()
    assert sorted(Path(file).read_bytes() for file in kept) == sorted(broken)
