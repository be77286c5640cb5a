"""Decode OTLP bytes into the columns of `spans` and `logs`. Pure: bytes in, Arrow out.

Attribute values become text: a string stays unchanged, bytes become base64, an unset value becomes
NULL, and every other value becomes JSON. If a span has a key twice, the last value is used.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_lightning.collector.load.decoding.attribute_limits import (
    NO_LIMITS,
    Limits,
    Pairs,
    limited,
    shortened,
)
from otel_lightning.collector.load.decoding.columns import (
    as_text,
    enum_names,
    from_numpy,
    hex_ids,
    is_id,
    member,
    of_owners,
    offsets,
    or_null,
    receipt_times,
    severities,
    times,
)
from otel_lightning.collector.load.decoding.values import as_json, text_of, value_texts
from otel_lightning.collector.otlp.fields import columns
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.store import attribute_columns
from otel_lightning.instrumentation.attributes import FEEDBACK_ID, REJECTED_RECORD

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUS_CODES = ("UNSET", "OK", "ERROR")


class Decoded(NamedTuple):
    """Rows for one table, and one reason for each record that has no row."""

    rows: pa.Table
    rejected: list[str]


class Records(NamedTuple):
    """The N records of a batch of requests, flattened, with their S scopes and R resources."""

    records: pa.StructArray  # [N]
    scopes: pa.StructArray  # [S]
    resources: pa.Array  # [R] serialised
    scope: pa.Array  # [N] index of its scope
    resource: pa.Array  # [N] index of its resource
    request: pa.Array  # [N] index of its request in the batch

    def filter(self, kept: pa.Array) -> "Records":
        """Return the records for which a mask, shape [N], is true."""
        of_each = ("records", "scope", "resource", "request")
        return self._replace(**{name: getattr(self, name).filter(kept) for name in of_each})


def decode(
    signal: Signal,
    bodies: Sequence[bytes],
    received_ns: Sequence[int],
    limits: Limits = NO_LIMITS,
) -> Decoded:
    """Decode requests of one signal into rows of its table.

    Args:
        signal: `traces` or `logs`.
        bodies: Serialised export requests, shape [R].
        received_ns: Time of receipt of each request, Unix nanoseconds, shape [R].
        limits: Limits on stored attributes.

    Returns:
        The rows, and one reason for each span without a valid id and for each log record that
        the receiver replaced because it was invalid.

    Raises:
        ValueError: If a body is not a protobuf message.
    """
    try:
        if signal == "traces":
            return _spans(_flatten(columns("Traces", bodies)), received_ns, limits)
        return _logs(bodies, received_ns, limits)
    except DecodeError as error:  # of a resource or a nested value; not a subclass of ValueError
        raise ValueError(str(error)) from error


def _flatten(batch: pa.RecordBatch) -> Records:
    """Flatten the nested lists request > resource > scope > record."""
    resources = batch.column("resources")
    of_request, resource = pc.list_parent_indices(resources), resources.flatten()
    scopes = resource.field("scopes")
    of_resource, scope = pc.list_parent_indices(scopes), scopes.flatten()
    records = scope.field("records")
    of_scope = pc.list_parent_indices(records)
    of_resource = of_resource.take(of_scope)
    return Records(
        records.flatten(),
        scope.field("scope"),
        resource.field("resource"),
        of_scope,
        of_resource,
        of_request.take(of_resource),
    )


def _spans(records: Records, received_ns: Sequence[int], limits: Limits) -> Decoded:
    valid = pc.and_(
        is_id(records.records.field("trace_id"), 16), is_id(records.records.field("span_id"), 8)
    )
    rejected = _rejections(records.records.filter(pc.invert(valid)))
    if rejected:
        records = records.filter(valid)
    span, resource, service = records.records, *_resources(records)
    status, (attributes, dropped) = span.field("status"), _attributes(span, limits)
    rows = {
        "trace_id": hex_ids(span.field("trace_id"), 16),
        "span_id": hex_ids(span.field("span_id"), 8),
        "parent_span_id": hex_ids(span.field("parent_span_id"), 8),
        "name": as_text(span.field("name")),
        "kind": enum_names(span.field("kind"), KINDS),
        "start_time": times(span.field("start_time")),
        "end_time": times(span.field("end_time")),
        "status_code": enum_names(member(status, "code"), STATUS_CODES),
        "status_message": or_null(as_text(member(status, "message"))),
        "service_name": service,
        "scope_name": _of_scopes(records, "name"),
        "scope_version": _of_scopes(records, "version"),
        "resource_json": resource,
        "attributes": attributes,
        **attribute_columns.columns(attributes),
        "events": _events(span.field("events"), limits),
        "links": _links(span.field("links"), limits),
        "trace_state": or_null(as_text(span.field("trace_state"))),
        "flags": span.field("flags"),
        "dropped_attributes_count": pc.add(span.field("dropped_attributes_count"), dropped),
        "dropped_events_count": span.field("dropped_events_count"),
        "dropped_links_count": span.field("dropped_links_count"),
        "received_at": receipt_times(records.request, received_ns),
    }
    return Decoded(pa.table(rows), rejected)


def _logs(bodies: Sequence[bytes], received_ns: Sequence[int], limits: Limits) -> Decoded:
    records = _flatten(columns("Logs", bodies))
    ids = _log_ids(_flatten(columns("Bytes", bodies)))
    readable = pc.not_equal(records.records.field("event_name"), REJECTED_RECORD.encode())
    rejected = value_texts(records.records.filter(pc.invert(readable)).field("body")).to_pylist()
    if rejected:
        ids, records = ids.filter(readable), records.filter(readable)
    log, resource, service = records.records, *_resources(records)
    attributes, _ = _attributes(log, limits)
    name = or_null(as_text(log.field("event_name")))
    attribute = pc.map_lookup(attributes, "event.name", "last")  # older SDKs write the name here
    trace = hex_ids(log.field("trace_id"), 16)
    own = pc.map_lookup(attributes, FEEDBACK_ID, "last")
    rows = {
        "log_id": _feedback_ids(ids, own, trace, log.field("observed_time")),
        "time": times(log.field("time")),
        "observed_time": times(log.field("observed_time")),
        "trace_id": trace,
        "span_id": hex_ids(log.field("span_id"), 8),
        "event_name": pc.coalesce(name, attribute),
        "severity": pc.coalesce(
            or_null(as_text(log.field("severity_text"))), severities(log.field("severity_number"))
        ),
        "body": shortened(value_texts(log.field("body")), limits),
        "attributes": attributes,
        "resource_json": resource,
        "service_name": service,
        "scope_name": _of_scopes(records, "name"),
        "received_at": receipt_times(records.request, received_ns),
    }
    return Decoded(pa.table(rows), [f"log record {reason}" for reason in rejected])


def _log_ids(records: Records) -> pa.Array:
    """Return an id for each log record, shape [N]: OTLP has none, so the content is hashed.

    A request that is sent again gets the same ids, so its records are recognised as duplicates.
    Equal records within one request are numbered, because there they are different events.
    """
    repeats: Counter[tuple[int, str]] = Counter()
    ids = []
    scopes, resources = records.scopes.to_pylist(), records.resources.to_pylist()
    of_scopes: dict[int, Any] = {}  # the digest of each scope and its resource
    columns_ = (records.records, records.scope, records.resource, records.request)
    for record, scope, resource, request in zip(*(c.to_pylist() for c in columns_), strict=True):
        if scope not in of_scopes:
            shared = of_scopes[scope] = hashlib.blake2b(digest_size=16)
            for part in (resources[resource], scopes[scope] or b""):
                _add(shared, part)
        digest = of_scopes[scope].copy()
        _add(digest, record)
        content = digest.hexdigest()
        earlier = repeats[request, content]
        repeats[request, content] += 1
        ids.append(f"{content}-{earlier}" if earlier else content)
    return pa.array(ids, pa.string())


def _add(digest: Any, part: bytes) -> None:
    # The length separates the parts: without it "ab" + "c" would equal "a" + "bc".
    digest.update(len(part).to_bytes(8, "little") + part)


def _feedback_ids(ids: pa.Array, own: pa.Array, trace: pa.Array, observed: pa.Array) -> pa.Array:
    """Replace the ids of judgements that have an id from their sender.

    Such an id is the hash of the sender's id, then the time of receipt. Deriving reads in the order
    of log ids, so of several judgements with one id it reads the newest last.
    """
    if own.null_count == len(own):
        return ids
    each = zip(*(column.to_pylist() for column in (ids, own, trace, observed)), strict=True)
    return pa.array(
        [_feedback_id(content, *sent) if sent[0] else content for content, *sent in each],
        pa.string(),
    )


def _feedback_id(content: str, own: str, trace: str | None, observed_ns: int) -> str:
    whose = hashlib.blake2b(f"{trace} {own}".encode(), digest_size=16).hexdigest()
    return f"{whose}-{observed_ns:016x}-{content}"


def _rejections(spans: pa.StructArray) -> list[str]:
    ids = zip(*(spans.field(n).to_pylist() for n in ("name", "trace_id", "span_id")), strict=True)
    return [
        f"span {name.decode(errors='replace')!r} has no valid id: trace_id {trace.hex() or 'empty'}"
        f" must be 16 bytes and span_id {span.hex() or 'empty'} 8 bytes, not all zero"
        for name, trace, span in ids
    ]


def _of_scopes(records: Records, name: str) -> pa.Array:
    return of_owners(or_null(as_text(member(records.scopes, name))), records.scope)


def _resources(records: Records) -> tuple[pa.Array, pa.Array]:
    """Decode each distinct resource once; return its attributes as JSON, and `service.name`."""
    unique = records.resources.dictionary_encode()
    owner = unique.indices.take(records.resource)
    each = [_resource(raw) for raw in unique.dictionary.to_pylist()]
    written = pa.array([as_json(attributes) for attributes in each], pa.string())
    services = pa.array([attributes.get("service.name") for attributes in each], pa.string())
    return of_owners(written, owner), of_owners(services, owner)


def _resource(raw: bytes) -> dict[str, str | None]:
    return {kv.key: text_of(kv.value) for kv in Resource.FromString(raw).attributes}


def _attributes(carrier: pa.StructArray, limits: Limits) -> tuple[pa.Array, pa.Array]:
    """Return attributes as maps, and the number of dropped attributes of each record."""
    lists = carrier.field("attributes")
    pairs = lists.flatten()
    keys, values = as_text(pairs.field("key")), value_texts(pairs.field("value"))
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    keep = _last_of_each(keys, sizes)
    if keep is not None:
        owner = np.repeat(np.arange(len(sizes)), sizes)[keep]
        keys, values = keys.take(pa.array(keep)), values.take(pa.array(keep))
        sizes = np.bincount(owner, minlength=len(sizes))
    if limits == NO_LIMITS:
        dropped = np.zeros(len(sizes), np.int64)
    else:
        (keys, values, sizes), dropped = limited(Pairs(keys, values, sizes), limits)
    maps = pa.MapArray.from_arrays(offsets(sizes), keys, values)
    return maps, from_numpy(dropped.astype(np.uint32), pa.uint32())


def _last_of_each(keys: pa.Array, sizes: np.ndarray) -> np.ndarray | None:
    """Return the position of the last of each span's equal keys; None if no key is repeated."""
    codes = keys.dictionary_encode()
    owner = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    # One number for each pair of record and key: equal only if both are.
    pair = owner * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
    # np.unique finds the first occurrence; in the reversed array that is the last one.
    distinct, from_end = np.unique(pair[::-1], return_index=True)
    return None if len(distinct) == len(pair) else np.sort(len(pair) - 1 - from_end)


def _events(lists: pa.ListArray, limits: Limits) -> pa.Array:
    event = lists.flatten()
    fields = {
        "time": times(event.field("time")),
        "name": as_text(event.field("name")),
        "attributes": _attributes(event, limits)[0],
    }
    return _list_of(lists, fields)


def _links(lists: pa.ListArray, limits: Limits) -> pa.Array:
    link = lists.flatten()
    fields = {
        "trace_id": hex_ids(link.field("trace_id"), 16),
        "span_id": hex_ids(link.field("span_id"), 8),
        "attributes": _attributes(link, limits)[0],
    }
    return _list_of(lists, fields)


def _list_of(lists: pa.ListArray, fields: dict[str, pa.Array]) -> pa.Array:
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    structs = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(offsets(sizes), structs)
