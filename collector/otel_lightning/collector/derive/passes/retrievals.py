"""Retrievals: each once, and which model call used the documents that were found."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.passes.rollouts.assign import Rollouts
from otel_lightning.collector.derive.rows import LlmCall, Retrieval
from otel_lightning.collector.derive.text.json_text import dumps

PROBE = 200
"""Number of characters of a document that are looked for in a call's input."""


def place(
    retrievals: Iterable[Retrieval], calls: Sequence[LlmCall], assigned: Rollouts
) -> list[Retrieval]:
    """Keep each retrieval once; give it its rollout, and the call that used its documents.

    That is the first later call of the rollout whose input holds the text of one of the documents.
    Where no text was recorded, of the documents or of the calls, it is the next call.

    Args:
        retrievals: The retrievals as read from spans, duplicates included.
        calls: The model calls in time order, with their rollouts.
        assigned: The rollout of each span.
    """
    ordered = sorted(retrievals, key=lambda row: (row.start_ns or 0, row.trace_id, row.span_id))
    rows = _without_inner(ordered)
    for row in rows:
        row.rollout_id = assigned.of(row.trace_id, row.span_id)
    wanted = {row.rollout_id for row in rows}
    by_rollout: dict[str | None, list[LlmCall]] = defaultdict(list)
    for call in calls if wanted else ():
        if call.rollout_id in wanted and call.step is not None:
            by_rollout[call.rollout_id].append(call)
    texts: dict[str, str] = {}
    for row in rows:
        ended = row.end_ns or row.start_ns or 0
        later = (call for call in by_rollout[row.rollout_id] if call.latest_start_ns >= ended)
        used_by = _using_call(row, later, texts)
        row.llm_span_id = used_by.span_id if used_by else None
    return rows


def _without_inner(rows: Sequence[Retrieval]) -> list[Retrieval]:
    """Drop a retrieval that is the only one of its kind directly below another: a duplicate.

    LlamaIndex records a search twice: the public method, and the method of the subclass inside it.
    A retriever with several below it asked each of them, so all of them stay. Fields that only the
    inner span has are copied to the outer one.
    """
    below: dict[tuple[str, str | None, str], list[Retrieval]] = defaultdict(list)
    for row in rows:
        below[row.trace_id, row.parent_span_id, row.kind].append(row)
    inner = set()
    for outer in reversed(rows):  # from the innermost one outwards
        inside = below.get((outer.trace_id, outer.span_id, outer.kind), ())
        if len(inside) == 1 and inside[0] is not outer:
            inner.add((inside[0].trace_id, inside[0].span_id))
            for name in ("query", "documents", "error_type"):
                if getattr(outer, name) is None:
                    setattr(outer, name, getattr(inside[0], name))
    return [row for row in rows if (row.trace_id, row.span_id) not in inner]


def _using_call(row: Retrieval, later: Iterable[LlmCall], texts: dict[str, str]) -> LlmCall | None:
    contents = (str(document.get("content") or "")[:PROBE] for document in row.documents or ())
    # As the text stands inside JSON: escaped, without the quotes around it.
    probes = [dumps(one).decode()[1:-1] for one in contents if one]
    for call in later:
        sent = _sent(call, texts)
        if not probes or not sent or any(probe in sent for probe in probes):
            return call
    return None


def _sent(call: LlmCall, texts: dict[str, str]) -> str:
    """Return the text of a call's input, written as JSON, once for each call."""
    if call.span_id not in texts:
        sent = unpack(call).input_messages
        texts[call.span_id] = dumps(sent).decode(errors="replace") if sent else ""
    return texts[call.span_id]
