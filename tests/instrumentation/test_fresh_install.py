"""The light install alone, as an agent's owner gets it: `pip install otel-lightning`, no extras."""

import sys
from pathlib import Path
from typing import Any

import pytest
from support.running import INSTALL_S, finish, installing

ROOT = Path(__file__).parent.parent.parent
AGENT = """
import openai
answer = openai.OpenAI().chat.completions.create(
    model="small", messages=[{"role": "user", "content": "Hi"}]
)
print(answer.choices[0].message.content)
"""
ABSENT = """
import importlib.util
heavy = ("click", "duckdb", "polars", "torch")
print([name for name in heavy if importlib.util.find_spec(name)])
"""


@pytest.mark.slow
def test_a_fresh_light_install_traces_an_unchanged_agent(
    agent: Any, wheel: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    python = str(venv / "bin" / "python")
    finish(sys.executable, "-m", "venv", "--without-pip", venv, check=True)
    pip = [*installing(python), "--constraint", str(ROOT / "constraints.txt")]
    finish(*pip, wheel, "openai", check=True, seconds=INSTALL_S)
    assert finish(python, "-c", ABSENT, check=True).stdout == "[]\n"
    output = agent.run(
        AGENT,
        bin_folder=venv / "bin",
        LIGHTNING_ROLLOUT_ID="rollout-1",
        LIGHTNING_REQUEST_TOKEN_IDS="true",  # noqa: S106 - a model's tokens
    )
    assert output == "Hello\n"
    (span,) = agent.sink.llm_spans()
    assert span.scope == "opentelemetry.instrumentation.openai.v1"
    assert span.attributes["gen_ai.request.model"] == "small"
    assert span.attributes["lightning.rollout.id"] == "rollout-1"
    assert span.attributes["lightning.completion_token_ids"] == [9707, 385, 151645]
