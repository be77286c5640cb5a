"""Agents that a tool of another agent invokes, as LangChain's packages record them."""

import pytest
from support.spans import chat, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span

STATED = "traceloop.association.properties.lc_agent_name"
QUESTION, ANSWER = text_message("user", "Hi"), text_message("assistant", "Hello")


def call_below(*names: str, stated: str = "outer") -> list[Span]:
    """Return a call that states an agent, and the spans around it, outermost first."""
    above = [
        span({}, id=f"s{at}", parent=f"s{at - 1}" if at else None, name=name)
        for at, name in enumerate(names)
    ]
    call = span(chat([QUESTION], ANSWER, {STATED: stated}), id="call", parent=f"s{len(names) - 1}")
    return [*above, call]


@pytest.mark.parametrize(
    ("names", "agent"),
    [
        (("outer", "model"), "outer"),
        (("outer", "tools", "ask", "inner", "model"), "inner"),
        (("outer", "tools", "ask", "inner", "model_request", "RunnableSequence"), "inner"),
        (
            ("outer.workflow", "execute_task tools", "execute_task inner", "execute_task model"),
            "inner",
        ),
        # Not an agent of its own, or one without a name.
        (("outer", "tools", "ask", "LangGraph", "model"), "outer"),
        (("outer", "tools", "ask", "retrieve", "call"), "outer"),
        # The name that the call states is nobody else's.
        (("pipeline", "research", "inner", "model"), "outer"),
    ],
)
def test_the_call_of_an_inner_agent_has_its_name(names: tuple[str, ...], agent: str) -> None:
    (call,) = derive(call_below(*names), []).llm_calls
    assert call.agent_name == agent


def test_spans_in_a_circle_name_no_agent() -> None:
    given = [one._replace(parent_span_id="s1") for one in call_below("inner", "model")]
    (call,) = derive(given, []).llm_calls
    assert call.agent_name == "outer"


@pytest.mark.parametrize(
    ("name", "stated", "agent"),
    [
        ("invoke_agent", {}, None),
        ("invoke_agent LangGraph", {"gen_ai.agent.name": "LangGraph"}, None),
        ("invoke_agent helper", {"gen_ai.agent.name": "helper"}, "helper"),
        ("helper", {}, "helper"),
    ],
)
def test_a_call_below_an_agent_that_nobody_named_has_no_agent(
    name: str, stated: dict[str, str], agent: str | None
) -> None:
    above = span({"gen_ai.operation.name": "invoke_agent", **stated}, id="run", name=name)
    call = span(chat([QUESTION], ANSWER), id="call", parent="run")
    (call_row,) = derive([above, call], []).llm_calls
    assert call_row.agent_name == agent
