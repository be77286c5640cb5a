"""Raw spans: a trace as a waterfall, in windows, and one span as it was received."""

import json
from typing import Any

from otel_lightning.collector.page.view_request import (
    NotFoundError,
    View,
    ViewRequest,
    address,
    segment,
)

WINDOW_SPANS = 200
MOST_TEXT = 60_000
INDENT_LEVELS = 12


def show(ask: ViewRequest, trace: str) -> View:
    """Show a window of a trace's spans in the order of their start."""
    whole = ask.row("trace", trace=trace)
    if not whole["spans"]:
        raise NotFoundError(f"There is no trace '{trace}'.")
    rows = ask.rows(
        "trace_spans",
        trace=trace,
        after_ns=ask.whole("after"),
        after_id=ask.text("last"),
        rows=WINDOW_SPANS + 1,
    )
    more = None
    if len(rows) > WINDOW_SPANS:
        rows = rows[:WINDOW_SPANS]
        more = ask.link(after=rows[-1]["start_ns"], last=rows[-1]["span_id"], fragment=None)
    values = {"trace": trace, "spans": [_placed(r, whole, trace) for r in _nested(rows)],
              "more": more}  # fmt: skip
    if ask.text("fragment"):
        return View("trace_rows.html", "", values)
    after = bool(ask.text("after"))
    return View("trace.html", f"Trace {trace[:16]}", {**values, "whole": whole, "after": after})


def show_span(ask: ViewRequest, trace: str, span: str) -> View:
    """Show a span with all its attributes, events and links."""
    row = ask.row("span", trace=trace, span=span, most_text=MOST_TEXT)
    if not row:
        raise NotFoundError(f"Trace '{trace}' has no span '{span}'.")
    return View(
        "span.html",
        f"Span {row['name']}",
        {
            "trace": trace,
            "span": row,
            "attributes": _entries(row["attributes"]),
            "resource": _entries(row["resource"]),
            "up": address(f"/traces/{segment(trace)}"),
        },
    )


def _entries(text: str | None) -> list[tuple[str, str]]:
    """Read the entries of a map; of a text that was cut, the text itself."""
    try:
        read = json.loads(text or "[]")
    except ValueError:
        return [("", f"{text} … (cut)")]
    if isinstance(read, dict):
        return [(key, str(value)) for key, value in read.items()]
    return [(str(one["key"]), str(one["value"])) for one in read]


def _nested(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the depth of each span, as far as its parents are in the window."""
    depths: dict[str, int] = {}
    for row in rows:  # a parent starts before its children, as a rule
        # A span whose parent is not in the window counts as a root.
        depths[row["span_id"]] = depths.get(row["parent_span_id"] or "", -1) + 1
    return [{**row, "depth": min(depths[row["span_id"]], INDENT_LEVELS)} for row in rows]


def _placed(row: dict[str, Any], whole: dict[str, Any], trace: str) -> dict[str, Any]:
    """Add the bar of a span, in thousandths of the trace's duration."""
    start, end = whole["start_ns"], whole["end_ns"] or whole["start_ns"]
    begins = start if row["start_ns"] is None else row["start_ns"]
    place = width = 0.0
    if begins is not None:  # else no span of the trace has a time
        length = max(end - start, 1)
        place = round((begins - start) / length * 1000, 1)
        width = max(round(((row["end_ns"] or begins) - begins) / length * 1000, 1), 2.0)
    return {
        **row,
        "x": place,
        "width": width,
        "href": address(f"/traces/{segment(trace)}/spans/{segment(row['span_id'])}"),
    }
