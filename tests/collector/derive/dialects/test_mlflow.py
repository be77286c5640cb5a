"""MLflow's dialect."""

import json
from typing import Any

import pytest
from support.spans import read_call, span


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        (["Hello", "Hi"], ["Hello", "Hi"]),
        (json.dumps("Hello"), ["Hello"]),
        (json.dumps("<openai.Stream object at 0x7f00>"), []),
    ],
)
def test_mlflows_answers_may_be_texts(answer: Any, texts: list[str]) -> None:
    call = read_call(span({"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": answer}))
    assert [one["parts"][0]["content"] for one in call.output_messages or []] == texts
