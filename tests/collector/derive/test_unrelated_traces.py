"""Rows of traces do not depend on which unrelated traces are derived together with them.

Each recording is derived beside a copy of itself with other ids and other proper names: an agent of
another service that works on another task at the same time.
"""

import re
from collections import defaultdict
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.captures import load
from support.spans import trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Log, Span

DATA = Path(__file__).parents[2] / "data"
TRUTHS = sorted(DATA.glob("*/*.truth.json"))
ID = re.compile(r"(?=[0-9A-Za-z]*[A-Za-z])(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}")
NAME = re.compile(r"\b(?!True|None|False)[A-Z][a-z]{3,}\b")
SERVICE = "service.name"
UNRELATED = 0.75
"""Least share of the recordings whose copies share no key with them."""


def other(text: str) -> str:
    """Return a text with other ids and other capitalised words, of the same lengths."""
    text = ID.sub(lambda found: hashed(found[0]), text)
    return NAME.sub(lambda found: found[0][::-1].capitalize(), text)


def hashed(text: str) -> str:
    """Return other letters and digits of the same number; the first letter stays one."""
    return (text[:1] + sha256(text.encode()).hexdigest() * len(text))[: len(text)]


def copied(value: Any) -> Any:
    """Return a span, a log record or a part of one with other texts."""
    if isinstance(value, str):
        return other(value)
    if isinstance(value, dict):  # keys are names that readers look for
        return {key: f"{one}2" if key == SERVICE else copied(one) for key, one in value.items()}
    if isinstance(value, Span):
        return value._replace(**{name: copied(getattr(value, name)) for name in OF_SPANS})
    if isinstance(value, tuple):
        return tuple(map(copied, value))
    if value is None or isinstance(value, int):
        return value
    return type(value)(**{one.name: copied(getattr(value, one.name)) for one in fields(value)})


OF_SPANS = (
    *("trace_id", "span_id", "parent_span_id", "attributes", "events", "links"),
    *("status_message", "resource"),
)


def rows(derived: Derived) -> dict[str, list[str]]:
    """Return all rows as text, those of each kind in one order."""
    found = {}
    for one in fields(derived):
        values = getattr(derived, one.name)
        listed = values.items() if isinstance(values, dict) else values
        found[one.name] = sorted(map(repr, listed))
    return found


def keys(spans: list[Span], logs: list[Log]) -> set[str]:
    """Return the keys by which these traces find others."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    named: dict[str | None, list[Log]] = defaultdict(list)
    for log in logs:
        named[log.trace_id].append(log)
    return {key for trace, own in by_trace.items() for key in trace_keys(own, named[trace])}


@cache
def unrelated(truth: Path) -> tuple[list[Span], list[Log]] | None:
    """Return the copy of a recording; None if it shares a key with the recording."""
    capture = load(truth)
    spans, logs = [*map(copied, capture.spans)], [*map(copied, capture.logs)]
    traces = {span.trace_id for span in capture.spans} & {span.trace_id for span in spans}
    shared = keys(capture.spans, capture.logs) & keys(spans, logs)
    return None if shared or traces else (spans, logs)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda one: f"{one.parent.name}/{one.name}")
def test_rows_stay_the_same_beside_unrelated_traces(truth: Path) -> None:
    capture, copy = load(truth), unrelated(truth)
    if copy is None:
        pytest.skip("the copy has a key in common with the recording")
    own, theirs = rows(derive(capture.spans, capture.logs)), rows(derive(*copy))
    both = rows(derive([*capture.spans, *copy[0]], [*capture.logs, *copy[1]]))
    assert both == {name: sorted([*some, *theirs[name]]) for name, some in own.items()}


def test_most_recordings_share_no_key_with_their_copies() -> None:
    found = [unrelated(truth) is not None for truth in TRUTHS]
    assert sum(found) >= UNRELATED * len(found)
