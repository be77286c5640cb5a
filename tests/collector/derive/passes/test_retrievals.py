"""Retrieved documents: who found them, with which scores, and which call used them."""

import json
from pathlib import Path

import pytest
from support.captures import read_spans
from support.frameworks import RETRIEVERS, Framework
from support.regressions import rows_of
from support.retrieved import of_spans, of_truth, reranked, reranked_truth
from support.spans import chat, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.messages.documents import documents

DATA = Path(__file__).parents[3] / "data" / "retrievers"


def test_retrievers_and_rerankers_of_several_dialects_are_read() -> None:
    rows = rows_of("retrieval").retrievals
    assert [(row.kind, row.query, row.documents, row.scores) for row in rows] == [
        ("retriever", "q", [{"content": "DOC", "score": 0.5}], [0.5]),
        ("retriever", "q", [{"id": "1", "score": 0.9}], [0.9]),
        ("reranker", "q", None, None),
    ]


def test_the_call_that_used_documents_is_the_first_whose_input_holds_one() -> None:
    found = {
        "openinference.span.kind": "RETRIEVER",
        "input.value": "capital of France",
        "retrieval.documents.0.document.content": 'Paris is "the" capital.',
    }
    plan = chat([text_message("user", "What next?")], text_message("assistant", "Look it up."))
    use = chat(
        [text_message("user", 'Known: Paris is "the" capital. So?')],
        text_message("assistant", "Paris."),
    )
    given = [
        span({}, id="root", ends=9),
        span(found, id="look", parent="root", at=1),
        span(plan, id="plan", parent="root", at=3),
        span(use, id="use", parent="root", at=5),
    ]
    (row,) = derive(given, []).retrievals
    assert (row.llm_span_id, row.rollout_id) == ("use", "t1")
    (row,) = derive(given[:3], []).retrievals
    assert row.llm_span_id is None


def test_documents_without_text_were_used_by_the_next_call() -> None:
    found = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": [{"id": "7"}]}
    use = chat([text_message("user", "So?")], text_message("assistant", "Paris."))
    (row,) = derive([span(found, id="look"), span(use, id="use", at=3)], []).retrievals
    assert row.llm_span_id == "use"


@pytest.mark.parametrize(
    "attributes",
    [
        {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanInputs": {"query": "q"}}
        | {"mlflow.spanOutputs": [{"page_content": "DOC", "metadata": {"p": 1}}]},
        {"langfuse.observation.type": "retriever", "langfuse.observation.input": {"query": "q"}}
        | {"langfuse.observation.output": [{"page_content": "DOC", "metadata": {"p": 1}}]},
        {"langsmith.span.kind": "retriever", "gen_ai.prompt": {"query": "q"}}
        | {"gen_ai.completion": {"documents": [{"page_content": "DOC", "metadata": {"p": 1}}]}},
        {"langwatch.span.type": "rag", "langwatch.input": {"type": "text", "value": "q"}}
        | {"langwatch.output": [{"content": "DOC", "metadata": {"p": 1}}]},
    ],
)
def test_other_dialects_give_the_same_retrieval(attributes: dict[str, object]) -> None:
    (row,) = derive([span(attributes)], []).retrievals
    assert (row.query, row.documents) == ("q", [{"content": "DOC", "metadata": {"p": 1}}])


@pytest.mark.parametrize("library", RETRIEVERS, ids=lambda library: library.name)
def test_recorded_retrievers_found_what_they_logged(library: Framework) -> None:
    logged = json.loads((DATA / f"{library.script}.json").read_text())
    assert of_spans(DATA / f"{library.script}.otlp.pb") == of_truth(logged)
    assert reranked(DATA / f"{library.script}.otlp.pb") == reranked_truth(logged)


def test_a_recorded_reranker_kept_what_it_logged_and_the_call_behind_it_used_that() -> None:
    logged = json.loads((DATA / "retrieve_llama_index.json").read_text())
    rows = derive(read_spans(DATA / "retrieve_llama_index.otlp.pb"), [])
    calls = {call.span_id: call for call in rows.llm_calls}
    kept = [row for row in rows.retrievals if row.kind == "reranker"]
    for row, (_, (best,), _) in zip(kept, reranked_truth(logged), strict=True):
        # The model of the recording answers with the first text that it is given.
        used_by = calls[row.llm_span_id or ""]
        assert used_by.rollout_id == row.rollout_id
        assert used_by.output_messages == [text_message("assistant", best)]


def test_a_retriever_that_asks_several_others_and_these_are_rows_of_their_own() -> None:
    found = {"openinference.span.kind": "RETRIEVER", "input.value": "q"}
    named = {**found, "retrieval.documents.0.document.content": "DOC"}
    given = [span(found, id="all"), span(found, id="a", parent="all", at=1)]
    rows = derive([*given, span(named, id="b", parent="all", at=2)], []).retrievals
    assert [row.span_id for row in rows] == ["all", "a", "b"]
    (row,) = derive([given[0], span(named, id="b", parent="all", at=2)], []).retrievals
    assert (row.span_id, row.documents) == ("all", [{"content": "DOC"}])


def test_what_is_no_document_is_left_out() -> None:
    assert documents([None, 3, {}]) is None
    assert documents("text") is None


def test_embeddings_take_no_step_and_make_no_rollout() -> None:
    embed = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}
    answer = chat([text_message("user", "So?")], text_message("assistant", "Paris."))
    given = [
        span(embed, trace="alone", id="e1"),
        span({}, id="root", ends=9),
        span(embed, id="e2", parent="root", at=1),
        span(answer, id="c", parent="root", at=3),
    ]
    calls = {call.span_id: call for call in derive(given, []).llm_calls}
    assert {one: (call.rollout_id, call.step) for one, call in calls.items()} == {
        "e1": (None, None),
        "e2": ("t1", None),
        "c": ("t1", 0),
    }


def test_tokens_written_to_the_cache_and_reported_costs_have_columns() -> None:
    usage = {"gen_ai.usage.cache_creation.input_tokens": 7, "operation.cost": 0.25}
    (call,) = derive(
        [span(chat([text_message("user", "a")], text_message("assistant", "b"), usage))], []
    ).llm_calls
    assert (call.cache_creation_input_tokens, call.cost) == (7, 0.25)
