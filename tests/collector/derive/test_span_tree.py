"""Calls find the agents around them in the tree of spans."""

from support.spans import ANSWER, QUESTION, chat, span

from otel_lightning.collector.derive.assemble import derive


def test_a_deep_trace_is_read_without_recursion_to_the_nearest_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    levels = [span({}, id=f"s{n}", parent=f"s{n - 1}", at=n) for n in range(1, 5_000)]
    call = span(chat([QUESTION], ANSWER), id="call", parent="s4999", at=6_000)
    derived = derive([call, *reversed(levels), span(agent, id="s0")], [])
    assert [one.agent_name for one in derived.llm_calls] == ["planner"]


def test_a_call_names_the_agent_that_runs_around_it() -> None:
    agent = span({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}, id="agent")
    step = span({}, id="step", parent="agent")
    call = span(chat([QUESTION], ANSWER), id="call", parent="step")
    assert derive([agent, step, call], []).llm_calls[0].agent_name == "a"
