"""Retrievals under the conventions' keys."""

from support.spans import span

from otel_lightning.collector.derive.assemble import derive


def test_a_tool_of_the_type_retriever_is_a_retrieval() -> None:
    """Azure's tracer for LangChain writes retrievals so."""
    keys = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "R",
        "gen_ai.tool.type": "retriever",
        "gen_ai.retriever.query": "capital of France",
        "gen_ai.retriever.results": [{"metadata": {"page": 0}, "content": "Paris is."}],
    }
    derived = derive([span(keys)], [])
    (found,) = derived.retrievals
    assert (found.query, derived.tool_calls) == ("capital of France", [])
    assert found.documents == [{"content": "Paris is.", "metadata": {"page": 0}}]
