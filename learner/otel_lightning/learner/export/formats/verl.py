"""Rows of verl's data sets, with tokens and advantages beside the prompt.

Source:
    verl, Prepare data for post-training: `data_source`, `prompt`, `ability`, `reward_model`,
    `extra_info`.
"""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import (
    MESSAGES,
    ORIGIN,
    Format,
    LeftOutError,
    Row,
    answer_of,
    origin,
    prompt_of,
    tools_of,
)

REWARD_MODEL = pa.struct({"style": pa.utf8(), "ground_truth": pa.utf8()})
EXTRA = pa.struct({"index": pa.int64(), "split": pa.utf8()} | ORIGIN)


def row(source: Row) -> dict[str, Any]:
    """Return a call with its token ids, and its advantage repeated for each completion token.

    A call with token ids needs no text, because the tokens fully represent the call.
    """
    tokens, logprobs = source["completion_token_ids"], source["completion_logprobs"]
    # A list of another length cannot be matched with the tokens: it counts as not logged.
    matched = logprobs is not None and len(logprobs) == len(tokens or ())
    try:
        prompt, responses = prompt_of(source), answer_of(source["completion"])
        tools = tools_of(source)
    except LeftOutError as lost:
        if not (lost.in_tokens and source["prompt_token_ids"] and tokens):
            raise
        prompt, responses, tools = [], [], None
    return {
        "data_source": "otel-lightning",
        "prompt": prompt,
        "responses": responses,
        "tools": tools,
        "ability": source["agent_name"],
        "reward_model": {"style": "rule", "ground_truth": None},
        "prompt_token_ids": source["prompt_token_ids"],
        "response_token_ids": tokens,
        "rollout_log_probs": logprobs if matched else None,
        # Without token ids the number of tokens is not known: the advantage is given once.
        "advantages": [source["advantage"]] * len(tokens or [None]),
        "extra_info": origin(source) | {"index": source["step"], "split": source["split"]},
    }


FORMAT = Format(
    summary="prompt, responses, token ids and advantages, for verl",
    statement="transitions",
    row=row,
    columns={
        "data_source": pa.utf8(),
        "prompt": MESSAGES,
        "responses": MESSAGES,
        "tools": pa.utf8(),
        "ability": pa.utf8(),
        "reward_model": REWARD_MODEL,
        "prompt_token_ids": pa.list_(pa.int32()),
        "response_token_ids": pa.list_(pa.int32()),
        "rollout_log_probs": pa.list_(pa.float64()),
        "advantages": pa.list_(pa.float64()),
        "extra_info": EXTRA,
    },
)
