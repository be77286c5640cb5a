"""Attribute keys that state one fact of any span: each dialect's file adds the keys of its vendor.

Which spans make one rollout depends on the conversation ids of all of them, whichever dialect reads
each. So these keys are looked for on every span.

A dialect adds its keys as constants with the names of `OF_DIALECTS`. The lists are complete once
the package `dialects` is imported, before the first span is read.
"""

from collections.abc import Collection
from types import ModuleType

from otel_lightning.instrumentation.attributes import ROLLOUT_ID

ROLLOUT = (ROLLOUT_ID, "agentlightning.rollout_id")
"""The keys of a rollout's id in a resource: ours, then that of Agent Lightning."""
CONVERSATION = ["gen_ai.conversation.id", "session.id", "gen_ai.session.id"]
"""The keys of a conversation's id, the most reliable first: the conventions', then the vendors'."""
BESIDE = {"group_id": "agent_trace_id"}
"""Keys that hold the id of a conversation only if another key is there: Logfire's for the OpenAI
Agents SDK, whose `group_id` links the traces of one conversation."""
NO_ID = "null"
"""Logfire's value of a conversation id where a conversation has none."""
AGENT = ["gen_ai.agent.name", "agent.name"]
"""The keys of the name of the agent that makes a call."""
NODE: list[str] = []
"""The keys of the node of LangGraph that makes a call, with the nodes around it or alone: see
`graph_nodes`. A package that writes both has the first one first."""
COST: list[str] = []
"""The keys of the cost of a call. The conventions have none."""
OF_DIALECTS = {
    "CONVERSATION_KEYS": CONVERSATION,
    "AGENT_KEYS": AGENT,
    "NODE_KEYS": NODE,
    "COST_KEYS": COST,
}
"""The constants of a dialect's module, with the list that each adds to."""


def add(dialect: ModuleType) -> None:
    """Add the keys that a dialect declares behind those that are known."""
    for name, known in OF_DIALECTS.items():
        known.extend(key for key in getattr(dialect, name, ()) if key not in known)


def conversation(known: Collection[str]) -> list[str]:
    """Return the keys that hold the id of a conversation in spans with these keys."""
    return [*CONVERSATION, *(key for key, other in BESIDE.items() if other in known)]
