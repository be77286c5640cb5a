import json
from typing import Any

import polars as pl
import pytest

from otel_lightning.learner.weights.examples import (
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
        "temperature": None,
        "prompt_token_ids": None,
        "completion_token_ids": None,
        "completion_logprobs": None,
        "reward": 1.0,
        "advantage": 1.0,
    }
    return pl.DataFrame([row | columns])


def test_token_ids_of_the_trace_are_taken_as_they_are(tokenizer: Any) -> None:
    logged = rows(
        prompt_token_ids=[4, 9, 1], completion_token_ids=[20, 1], completion_logprobs=[-0.5, -0.25]
    )
    found = tokenize(logged, tokenizer)
    (example,) = found.examples
    assert (example.prompt, example.completion) == ((4, 9, 1), (20, 1))
    assert example.logprob == -0.75
    assert example.logprobs == (-0.5, -0.25)
    assert example.source == "logged"
    assert found.skipped == []


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


def test_prompt_that_is_no_prefix_of_the_whole_is_skipped_and_counted(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = "{{ messages | length }} " + tokenizer.chat_template
    monkeypatch.setattr(tokenizer, "chat_template", counted)
    found = tokenize(rows(), tokenizer)
    assert (found.examples, found.skipped) == ([], ["a"])
    assert list(found.reasons) == [NO_PREFIX]


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
    found = tokenize(rows(messages=json.dumps([seen]), **ids), tokenizer)
    assert (found.examples, found.skipped) == ([], ["a"])
    assert found.reasons == {IMAGES: 1}


def test_transition_that_is_too_long_is_skipped_whole_and_counted(tokenizer: Any) -> None:
    (example,) = tokenize(rows(), tokenizer).examples
    assert tokenize(rows(), tokenizer, example.length).examples == [example]
    found = tokenize(rows(), tokenizer, example.length - 1)
    assert (found.examples, found.skipped) == ([], ["a"])
    assert found.reasons == {TOO_LONG: 1}


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
