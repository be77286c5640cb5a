"""One step as the store has it: all messages, tools, parameters; and where else its state was."""

import json
from typing import Any

from otel_lightning.collector.page.advantage_terms import explain
from otel_lightning.collector.page.conversation import parts
from otel_lightning.collector.page.view_request import (
    NotFoundError,
    View,
    ViewRequest,
    address,
    segment,
)

MOST_TEXT = 400_000
MOST_PART = 100_000
MOST_PARTS = 400
FIELDS = (
    "agent_name", "service_name", "dialect", "operation", "provider", "request_model",
    "response_model", "response_id", "finish_reason", "error_type", "error_message",
    "input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens", "conversation_id",
    "content", "trace_id", "span_id", "state_hash",
)  # fmt: skip


def _first(messages: str | None, count: int) -> str | None:
    """Return the first messages of a JSON array."""
    try:
        return json.dumps(json.loads(messages or "[]")[:count])
    except (ValueError, TypeError):
        return messages


def _state(ask: ViewRequest, rollout: str, call: dict[str, Any]) -> dict[str, Any]:
    """Return how the advantage of a call came about, and where else its state was."""
    identity = {"rollout": rollout, "step": call["step"]}
    config = json.loads(ask.row("credit_last").get("config") or "{}")
    row = ask.row("why", **identity)
    if "anchor_state" in config.get("credit", ""):
        row |= ask.row("why_visits", **identity, state=call["state_hash"])
    return {
        "numbers": ask.row("state_numbers", state=call["state_hash"]),
        "has_credit": row.get("advantage") is not None,
        "why": explain(config, row),
    }


def show(ask: ViewRequest, rollout: str, step: str) -> View:
    """Show a step; with `fragment`, only its earlier messages."""
    if not step.isdigit() or len(step) > 9:  # noqa: PLR2004  digits of an INTEGER
        raise NotFoundError(f"'{step}' is not the number of a step.")
    call = ask.row(
        "step", rollout=rollout, step=int(step), at_ns=ask.whole("at"), most_text=MOST_TEXT
    )
    if not call:
        raise NotFoundError(f"Rollout '{rollout}' has no step {step}.")
    messages = parts(call["input_messages"], MOST_PART)
    values = {
        "call": call,
        "fields": [(name, call[name]) for name in FIELDS if call[name] is not None],
        "found": messages[-MOST_PARTS:],
        "left_out": max(len(messages) - MOST_PARTS, 0),
        "answers": parts(call["output_messages"], MOST_PART),
        "up": address(f"/rollouts/{segment(rollout)}", at=ask.text("at"), step=step) + f"#s{step}",
        "rollout_id": rollout,
    }
    if ask.text("part") == "state":
        return View("step_state.html", "", {**values, **_state(ask, rollout, call)})
    if ask.text("fragment"):
        earlier = parts(_first(call["input_messages"], ask.whole("earlier") or 0), MOST_PART)
        return View("step_earlier.html", "", {**values, "found": earlier[-MOST_PARTS:]})
    return View("step.html", f"Step {step}", values)
