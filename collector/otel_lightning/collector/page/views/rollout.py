"""One rollout: its conversation with credit, step by step, in windows that are loaded on demand."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.conversation import Part, parts
from otel_lightning.collector.page.text import decimal, short, signed
from otel_lightning.collector.page.view_request import (
    NotFoundError,
    View,
    ViewRequest,
    address,
    segment,
)
from otel_lightning.collector.page.views.filters import filter_parameters, page_of
from otel_lightning.collector.page.views.rollout_links import link
from otel_lightning.collector.show.conversation import text_or_json

WINDOW_STEPS = 100
WINDOW_CHARACTERS = 90_000
"""Most characters of text in a window: it ends before the step that would exceed them."""
MOST_TEXT = 400_000
MOST_CELLS = 240
BEFORE_STEP = 2  # steps shown before the one that a link asks for
MOST_DOCUMENT = 600
"""Characters of a retrieved document on the page of a rollout."""
SECOND_NS = 10**9
BESIDE_NS = 60 * SECOND_NS
"""Tools and look-ups of documents run at most this long before or after the calls."""


Row = dict[str, Any]
ByCall = dict[str | None, list[Row]]
"""Rows by the span id of their call; those that belong to no call are under None."""


class Beside(NamedTuple):
    """The rows that are shown with the calls of a window."""

    tools: ByCall
    rewards: ByCall
    retrievals: ByCall


class Window(NamedTuple):
    """Steps that are shown together."""

    steps: list[Row]
    following: int | None
    """The first step after them, if there is one."""
    beside: Beside


def show(ask: ViewRequest, rollout: str) -> View:
    """Show a rollout; with `fragment`, only the steps of a window."""
    row = _rollout(ask, rollout)
    chosen_step = ask.whole("step") or 0
    first = ask.whole("first")
    first = max(chosen_step - BEFORE_STEP if first is None else first, 0)
    became = ask.row("rollout_became", rollout=rollout)
    steps, following, beside = _window(ask, row, first, became)
    window = {
        "rollout": row,
        "steps": steps,
        "more": ask.link(first=following, step=None, fragment=None) if following else None,
        "before": ask.link(first=max(first - WINDOW_STEPS, 0), step=None) if first else None,
        "asked": chosen_step,
    }
    if ask.text("fragment"):
        return View("rollout_steps.html", rollout, window)
    who = row["agent_name"] or row["service_name"]
    title = f"{row['task_id'] or short(rollout)}{f' · {who}' if who else ''}"
    return View(
        "rollout.html",
        title,
        {
            **window,
            **_credit(ask, row, became),
            **_neighbours(ask, row),
            "rewards": beside.rewards.get(None, []),
            # Tools and look-ups that belong to no call are shown once, before the first step.
            "unused": [] if first else beside.retrievals.get(None, []),
            "tools_of_no_step": [] if first else beside.tools.get(None, []),
            "arms": ask.rows("rollout_arms", rollout=rollout),
            "traces": ask.rows("rollout_traces", **_place(row)),
            "errors": [r["step"] for r in ask.rows("rollout_errors", **_place(row))],
            "judge_item": json.dumps(_judgement(rollout)),
        },
    )


def _rollout(ask: ViewRequest, rollout: str) -> Row:
    row = ask.row("rollout", rollout=rollout, at_ns=ask.whole("at"))
    if not row and ask.whole("at") is not None:  # its first call was found later
        row = ask.row("rollout", rollout=rollout, at_ns=None)
    if not row:
        near = ask.rows("rollout_nearest", rollout=rollout, start=rollout[:8])
        names = ", ".join(one["rollout_id"] for one in near)
        similar = f" Similar ids: {names}." if near else ""
        raise NotFoundError(f"There is no rollout '{rollout}'.{similar}")
    return row


def _place(row: Row, margin_ns: int = SECOND_NS) -> dict[str, Any]:
    """Return the parameters with which DuckDB skips to the calls of a rollout.

    If the sender gave its calls no time, they are searched for in the whole table.
    """
    if row["start_ns"] is None:
        return {"rollout": row["rollout_id"], "start_ns": None, "end_ns": None}
    return {
        "rollout": row["rollout_id"],
        "start_ns": row["start_ns"] - margin_ns,
        "end_ns": (row["end_ns"] or row["start_ns"]) + margin_ns,
    }


def _window(ask: ViewRequest, row: Row, first: int, became: Row) -> Window:
    """Return the steps of a window with their tools, rewards and retrieved documents."""
    last = first + WINDOW_STEPS - 1
    during, around = _place(row), _place(row, BESIDE_NS)
    calls = ask.rows("rollout_calls", **during, first=first, last=last, most_text=MOST_TEXT)
    credit = _credit_of_steps(ask, row, became, first, last)
    spans = [call["span_id"] for call in calls]
    beside = Beside(
        _grouped(ask.rows("rollout_tools", **around, spans=spans, most_text=4000), "step_span_id"),
        _grouped(ask.rows("rollout_rewards", **around, spans=spans), "call_span_id"),
        _retrievals(ask, around, spans),
    )
    steps: list[Row] = []
    size = 0
    for call in calls:
        step = _step(row, call, credit.get(call["step"]), beside)
        if steps and any(tool["result"] is not None for tool in steps[-1]["tools"]):
            # The page shows a tool's result in the step that asked for the tool.
            step["new"] = [part for part in step["new"] if part.kind != "tool_call_response"]
        size += step["size"]
        # Never before the first step of a window: a step that is too long alone has a window of its
        # own.
        if steps and size > WINDOW_CHARACTERS:
            return Window(steps, call["step"], beside)
        steps.append(step)
    known_more = bool(steps) and steps[-1]["step"] < (row["llm_calls"] or 0) - 1
    return Window(steps, steps[-1]["step"] + 1 if known_more else None, beside)


def _credit_of_steps(
    ask: ViewRequest, row: Row, became: Row, first: int, last: int
) -> dict[int, Row]:
    """Return the credit of steps, by step; nothing if the rollout became no transitions."""
    if not became:
        return {}
    built = {"rollout": row["rollout_id"], "task_hash": became["task_hash"]}
    return {one["step"]: one for one in ask.rows("rollout_credit", **built, first=first, last=last)}


def _grouped(rows: Iterable[Row], column: str) -> ByCall:
    """Return the rows by their value in a column, in the order of the rows."""
    groups: ByCall = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _retrievals(ask: ViewRequest, during: Row, spans: list[str]) -> ByCall:
    """Return the look-ups of documents by the call that used them; None if none did."""
    retrievals = []
    for retrieval in ask.rows("rollout_retrievals", **during, spans=spans, most_text=20_000):
        documents = [_document(one) for one in json.loads(retrieval["documents"] or "[]")]
        # Plus what a look-up takes on the page without any text.
        size = sum(len(document["text"]) for document in documents) + 200
        retrievals.append({**retrieval, "documents": documents, "size": size})
    return _grouped(retrievals, "llm_span_id")


def _document(document: Any) -> Row:
    content = document if isinstance(document, dict) else {"content": document}
    text = text_or_json(content.get("content") or content.get("id") or content)
    return {"score": content.get("score"), "text": text[:MOST_DOCUMENT], "length": len(text)}


def _step(row: Row, call: Row, credit: Row | None, beside: Beside) -> Row:
    """Return a step of the page: a call with the rows beside it, and the size of its texts."""
    tools, rewards, retrievals = (rows.get(call["span_id"], []) for rows in beside)
    new, answer = parts(call["new_messages"]), parts(call["answer"])
    # The answers of the step before come again as messages; the page has them already.
    fresh = new[_echoed(new) :] if call["grew"] else new
    # Plus what a step takes on the page without any text.
    size = sum(len(p.text) for p in [*fresh, *answer]) + 600
    size += sum(len(t["arguments"] or "") + len(t["result"] or "") for t in tools)
    size += sum(one["size"] for one in retrievals)
    size += sum(len(one["explanation"] or "") for one in rewards)
    rollout = row["rollout_id"]
    own = address(f"/rollouts/{segment(rollout)}/steps/{call['step']}", at=row["start_ns"])
    return {
        **call,
        "new": fresh,
        "answers": answer,
        "tools": tools,
        "rewards": rewards,
        "retrievals": retrievals,
        "asked_for": {part.name for part in answer if part.kind == "tool_call"},
        "credit": credit,
        "heat": plots.heat(call["logprobs"] or []),
        "size": size,
        "address": own,
    }


def _echoed(new: list[Part]) -> int:
    """Return how many of the first parts are the model's own answer, sent back to it."""
    return next((i for i, part in enumerate(new) if part.role != "assistant"), len(new))


def _judgement(rollout: str) -> dict[str, str]:
    """Return the feedback of a person, but for its value: judged again, it replaces."""
    return {"id": f"page:{rollout}:human", "name": "human", "rollout_id": rollout}


def _credit(ask: ViewRequest, row: Row, became: Row) -> Row:
    """Return the strip of advantages, and how credit was given."""
    # Rounded up, so that there are at most MOST_CELLS cells.
    per_cell = max(-(-(row["llm_calls"] or 1) // MOST_CELLS), 1)
    cells: list[Row] = []
    if became:
        built = {"rollout": row["rollout_id"], "task_hash": became["task_hash"]}
        cells = ask.rows("rollout_strip", **built, steps_per_cell=per_cell)
    unequal = [cell for cell in cells if cell["advantage"]]
    largest = max(unequal, key=lambda cell: abs(cell["advantage"]), default=None)
    config = json.loads(ask.row("credit_last").get("config") or "{}")
    return {
        "became": became,
        "strip": plots.strip([(cell["step"], cell["advantage"]) for cell in cells]),
        "cells": [
            (
                f"step {cell['step']}: {signed(cell['advantage'])}",
                _to_step(ask, cell["step"]).removeprefix(address(ask.path)),
            )
            for cell in cells
        ],
        "largest": _to_step(ask, largest["step"]) if largest else None,
        "largest_label": f"step {largest['step']} ({signed(largest['advantage'])})"
        if largest
        else "",
        "method": config.get("credit"),
        "gamma": decimal(config["gamma"]) if "gamma" in config else None,
    }


def _to_step(ask: ViewRequest, step: int) -> str:
    return ask.link(step=step, first=None) + f"#s{step}"


def _neighbours(ask: ViewRequest, row: Row) -> Row:
    """Return the addresses of the next and previous rollout within the filter, and of its list."""
    after = (row["start_ns"], ask.real("key"), row["rollout_id"])
    filtered = filter_parameters(ask)
    # Without a start it has no place in a list by time.
    has_place = row["start_ns"] is not None
    following = page_of(ask, 1, after=after) if has_place else []
    preceding = page_of(ask, 1, after=after, back=True) if has_place else []
    return {
        "next": link(following[0], filtered) if following else None,
        "previous": link(preceding[0], filtered) if preceding else None,
        "up": address("/rollouts", **filtered),
    }
