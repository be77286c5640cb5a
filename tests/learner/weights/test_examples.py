import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.chat import CARRIED
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.weights.examples import (
    CUT,
    IMAGES,
    NO_PREFIX,
    TOO_LONG,
    chat_messages,
    chat_tools,
    tokenize,
)

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "refund 7"}]}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "left"}]}


def rows(**columns: Any) -> pl.DataFrame:
    row = {
        "rollout_id": "a",
        "step": 0,
        "agent": None,
        "model": None,
        "task": "a",
        "split": "train",
        "state_hash": "0",
        "messages": json.dumps([QUESTION]),
        "tools": None,
        "completion": json.dumps([ANSWER]),
        "content": "full",
        "finish_reason": None,
        "temperature": None,
        "prompt_token_ids": None,
        "completion_token_ids": None,
        "completion_logprobs": None,
        "reward": 1.0,
        "outcome": 1.0,
        "advantage": 1.0,
        "began": None,
        "is_carried": None,
    }
    return pl.DataFrame([row | columns])


def test_token_ids_of_the_trace_are_taken_as_they_are(tokenizer: Any) -> None:
    logged = rows(
        prompt_token_ids=[4, 9, 1], completion_token_ids=[20, 1], completion_logprobs=[-0.5, -0.25]
    )
    tokenized = tokenize(logged, tokenizer)
    (example,) = tokenized.examples
    assert (example.prompt, example.completion) == ((4, 9, 1), (20, 1))
    assert example.logprob == -0.75
    assert example.logprobs == (-0.5, -0.25)
    assert example.source == "logged"
    assert tokenized.skipped == []


def test_messages_go_through_the_chat_template_where_ids_are_missing(tokenizer: Any) -> None:
    (example,) = tokenize(rows(), tokenizer).examples
    assert tokenizer.decode(example.prompt) == "<user> refund 7 <end> <assistant>"
    assert tokenizer.decode(example.completion) == "left <end>"
    assert example.logprob is None


def test_what_the_template_writes_after_the_end_was_not_written_by_the_model(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tokenizer.chat_template.replace("<end> {% endfor %}", "<end> <pad> {% endfor %}")
    monkeypatch.setattr(tokenizer, "chat_template", template)
    (example,) = tokenize(rows(), tokenizer).examples
    assert tokenizer.decode(example.completion) == "left <end>"


def test_an_answer_that_was_cut_off_does_not_teach_to_end_there(tokenizer: Any) -> None:
    (whole,) = tokenize(rows(finish_reason="stop"), tokenizer).examples
    (cut,) = tokenize(rows(finish_reason="length"), tokenizer).examples
    assert whole.completion == (*cut.completion, tokenizer.eos_token_id)
    assert cut.completion


def test_end_of_a_turn_that_is_not_the_end_token_is_not_learned_from_a_cut_answer(
    tokenizer: Any,
) -> None:
    # As of Gemma, whose turns end with <end_of_turn> while its end token is <eos>.
    other = deepcopy(tokenizer)
    other.eos_token = tokenizer.pad_token
    written = {}
    for reason in ("stop", "length", "content_filter"):
        (example,) = tokenize(rows(finish_reason=reason), other).examples
        written[reason] = other.decode(example.completion)
    assert written == {"stop": "left <end>", "length": "left", "content_filter": "left"}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_call", "id": "1", "name": "lookup", "arguments": {"order": "7"}},
        {"type": "reasoning", "content": "up"},  # which this template leaves out
    ],
)
def test_cut_answer_without_a_text_that_the_template_can_continue_is_read_as_a_whole(
    part: dict[str, Any], tokenizer: Any
) -> None:
    answer = json.dumps([{"role": "assistant", "parts": [part]}])
    (whole,) = tokenize(rows(completion=answer), tokenizer).examples
    (cut,) = tokenize(rows(completion=answer, finish_reason="length"), tokenizer).examples or [None]
    assert whole.completion == (*(cut.completion if cut else ()), tokenizer.eos_token_id)


def test_prompt_that_is_no_prefix_of_the_whole_is_skipped_and_counted(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = "{{ messages | length }} " + tokenizer.chat_template
    monkeypatch.setattr(tokenizer, "chat_template", counted)
    tokenized = tokenize(rows(), tokenizer)
    assert (tokenized.examples, tokenized.skipped) == ([], ["a"])
    assert list(tokenized.reasons) == [NO_PREFIX]


@pytest.mark.parametrize("ids", [{}, {"prompt_token_ids": [4], "completion_token_ids": [20]}])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "uri", "modality": "image", "uri": "https://example.org/1.png"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBORw0="},
        {"type": "file", "modality": "audio", "file_id": "file-1"},
    ],
)
def test_image_is_skipped_and_counted_also_where_token_ids_were_logged(
    part: dict[str, str], ids: dict[str, list[int]], tokenizer: Any
) -> None:
    seen = {"role": "user", "parts": [*QUESTION["parts"], part]}
    tokenized = tokenize(rows(messages=json.dumps([seen]), **ids), tokenizer)
    assert (tokenized.examples, tokenized.skipped) == ([], ["a"])
    assert tokenized.reasons == {IMAGES: 1}


TEXT, IMAGE = QUESTION["parts"][0], {"type": "uri", "modality": "image", "uri": "1.png"}
CALL = {"type": "tool_call", "id": "1", "name": "add", "arguments": {"type": "image"}}


def said(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": list(parts)}]


CARRIED_MESSAGES = {
    "none": [],
    "a text": said(TEXT),
    "a text about JSON": said({"type": "text", "content": '{"type": "image", "parts": [{}]}'}),
    "a call whose argument has a type": said(TEXT, CALL),
    "a call with odd arguments": said(CALL | {"arguments": None, "arguments_raw": "2, 3"}),
    "a result that is a list": said(
        {"type": "tool_call_response", "id": "1", "response": [{"type": "image"}]}
    ),
    "a type that is not the first key": said({"content": "Hm.", "type": "reasoning"}),
    "no parts": [{"role": "user", "parts": []}, {"role": "user", "parts": None}, {"role": "user"}],
}
OTHER_MESSAGES = {
    "an image": said(IMAGE),
    "an image after texts": [*said(TEXT, TEXT), *said(TEXT), *said(TEXT, IMAGE)],
    "no type": said(TEXT, {"content": "Hello"}),
    "a type that is null": said({"type": None, "content": "Hello"}),
    "a type that is a list": said({"type": ["text"], "content": "Hello"}),
    "a part that looks like a message": said({"role": "user", "parts": [TEXT]}),
    "a part that looks like a message of two": said({"role": "user", "parts": [TEXT, TEXT]}, TEXT),
}


@pytest.mark.parametrize("column", ["input_messages", "output_messages"])
def test_store_knows_which_messages_have_only_parts_that_tokens_carry(
    column: str, tokenizer: Any, tmp_path: Path
) -> None:
    both = CARRIED_MESSAGES | OTHER_MESSAGES
    calls = [
        {"input_messages": "[]", "output_messages": "[]", column: json.dumps(messages)}
        | {"trace_id": "a", "span_id": name, "prompt_token_ids": [4], "completion_token_ids": [20]}
        for name, messages in both.items()
    ]
    with open_store(tmp_path / "store.duckdb") as store:
        store.insert("llm_calls", arrow(pl.DataFrame(calls)))
        store.execute(
            "INSERT INTO transition_rows BY NAME SELECT span_id AS rollout_id, 0 AS step, trace_id,"
            " span_id, 'train' AS split, 1.0 AS reward, 1.0 AS advantage FROM llm_calls"
        )
        found = read(store, "otel_lightning.learner.weights", "completions", carried=CARRIED)
    carried = found.filter("is_carried")["rollout_id"].to_list()
    assert sorted(carried) == sorted(CARRIED_MESSAGES)
    assert sorted(tokenize(found, tokenizer).skipped) == sorted(OTHER_MESSAGES)
    # Without what the store says, every message is looked through.
    looked = tokenize(found.with_columns(is_carried=None), tokenizer)
    assert sorted(looked.skipped) == sorted(OTHER_MESSAGES)


@pytest.mark.parametrize("content", ["truncated", "redacted"])
def test_call_with_incomplete_messages_is_left_out_unless_its_tokens_are_known(
    content: str, tokenizer: Any, tmp_path: Path
) -> None:
    tokens = {"prompt_token_ids": [4], "completion_token_ids": [20]}
    said = {"input_messages": json.dumps([QUESTION]), "output_messages": json.dumps([ANSWER])}
    calls = [
        {"trace_id": "t", "span_id": "text", "content": content} | said,
        {"trace_id": "t", "span_id": "tokens", "content": content} | said | tokens,
        {"trace_id": "t", "span_id": "whole", "content": "full"} | said,
    ]
    with open_store(tmp_path / "store.duckdb") as store:
        store.insert("llm_calls", arrow(pl.DataFrame(calls)))
        store.execute(
            "INSERT INTO transition_rows BY NAME SELECT span_id AS rollout_id, 0 AS step, trace_id,"
            " span_id, 'train' AS split, 1.0 AS reward, 1.0 AS advantage FROM llm_calls"
        )
        rows = read(store, "otel_lightning.learner.weights", "completions", carried=CARRIED)
    tokenized = tokenize(rows, tokenizer)
    assert [example.rollout_id for example in tokenized.examples] == ["tokens", "whole"]
    assert tokenized.reasons == {CUT: 1}


def test_transition_that_is_too_long_is_skipped_whole_and_counted(tokenizer: Any) -> None:
    (example,) = tokenize(rows(), tokenizer).examples
    assert tokenize(rows(), tokenizer, example.length).examples == [example]
    tokenized = tokenize(rows(), tokenizer, example.length - 1)
    assert (tokenized.examples, tokenized.skipped) == ([], ["a"])
    assert tokenized.reasons == {TOO_LONG: 1}


def test_later_calls_of_a_rollout_are_counted_also_where_they_are_left_out(tokenizer: Any) -> None:
    image = {"role": "user", "parts": [{"type": "image", "content": "…"}]}
    calls = [rows(), rows(step=1), rows(step=2, messages=json.dumps([image])), rows(rollout_id="b")]
    tokenized = tokenize(pl.concat(calls, how="vertical_relaxed"), tokenizer)
    assert [(e.rollout_id, e.later) for e in tokenized.examples] == [("a", 2), ("a", 1), ("b", 0)]


def test_logprobs_that_do_not_match_the_tokens_are_not_trusted(tokenizer: Any) -> None:
    logged = rows(prompt_token_ids=[4], completion_token_ids=[20, 1], completion_logprobs=[-0.5])
    assert tokenize(logged, tokenizer).examples[0].logprob is None


def test_stored_messages_become_chat_messages() -> None:
    stored = [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "tool_call", "id": "1", "name": "lookup", "arguments": {"order": 7}},
            ],
        },
        {
            "role": "tool",
            "parts": [
                {"type": "tool_call_response", "id": "1", "response": {"status": "lost"}},
                {"type": "tool_call_response", "id": "2", "response": "found"},
            ],
        },
    ]
    lookup = {"name": "lookup", "arguments": {"order": 7}}
    assert chat_messages(stored) == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [{"type": "function", "id": "1", "function": lookup}],
        },
        {"role": "tool", "tool_call_id": "1", "content": '{"status": "lost"}'},
        {"role": "tool", "tool_call_id": "2", "content": "found"},
    ]


def test_tool_definitions_become_functions() -> None:
    wrapped = {"type": "function", "function": {"name": "lookup"}}
    assert chat_tools([{"name": "lookup"}, wrapped]) == [wrapped, wrapped]
