"""What the desk's agent can do: one tool that looks, six that act."""

from collections.abc import Mapping
from typing import Any

ACTIONS = {
    "refund_order": "Give the customer the money back.",
    "replace_item": "Send a new item.",
    "cancel_order": "Stop the order before it leaves.",
    "trace_parcel": "Ask the carrier where the parcel is.",
    "give_credit": "Give the customer a voucher.",
    "escalate": "Hand the case to a person.",
}
DESCRIPTIONS = {"lookup": "Read the case of an order."} | ACTIONS

_PARAMETERS = {
    "type": "object",
    "properties": {"order": {"type": "string", "description": "The order id."}},
    "required": ["order"],
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": _PARAMETERS},
    }
    for name, description in DESCRIPTIONS.items()
]


def run_tool(name: str, arguments: Mapping[str, Any], cases: Mapping[str, str]) -> dict[str, str]:
    """Run one tool of the desk.

    Args:
        name: The tool that the model asked for.
        arguments: Its arguments, parsed.
        cases: The case of each order that exists.

    Returns:
        What the tool answers; an `error` where the model asked for what is not there.
    """
    order = str(arguments.get("order"))
    if name not in DESCRIPTIONS:
        return {"error": f"no tool '{name}'"}
    if order not in cases:
        return {"error": f"no order '{order}'"}
    return {"case": cases[order]} if name == "lookup" else {"done": name}
