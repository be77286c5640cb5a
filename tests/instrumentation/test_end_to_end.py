"""An agent that knows nothing of us, under opentelemetry-instrument, seen by an OTLP receiver."""

import json
from typing import Any

import pytest

FLAGS = {
    "flags": {
        "support-prompt": {
            "state": "ENABLED",
            "variants": {"brief": "Be brief.", "careful": "Think first."},
            "defaultVariant": "brief",
            "targeting": {"fractional": [["brief", 0], ["careful", 100]]},
            "metadata": {"lightning.propensity.careful": 1.0, "lightning.policy.version": "3"},
        }
    }
}

AGENT = """
import openai
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext

api.set_provider_and_wait(
    FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path="flags.json")
)
prompt = api.get_client().get_string_value("support-prompt", "Be.", EvaluationContext("customer-7"))
messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "Hi"}]
client = openai.OpenAI()
for stream in (False, True):
    answer = client.chat.completions.create(model="small", messages=messages, stream=stream)
    print([chunk.choices[0].delta.content for chunk in answer] if stream
          else answer.choices[0].message.content)
"""

REWARDED = """
import openai
from opentelemetry import baggage, context
from otel_lightning.instrumentation import evaluation_result

for rollout in ("first", "second"):
    token = context.attach(baggage.set_baggage("lightning.rollout.id", rollout))
    answer = openai.OpenAI().chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Hi"}]
    )
    evaluation_result("greeted", answer.choices[0].message.content == "Hello")
    context.detach(token)
"""


def test_variables_alone_put_tokens_arms_and_rollout_on_the_llm_spans(agent: Any) -> None:
    (agent.folder / "flags.json").write_text(json.dumps(FLAGS))
    output = agent.run(
        AGENT,
        LIGHTNING_ROLLOUT_ID="rollout-1",
        LIGHTNING_TASK_ID="task-1",
        LIGHTNING_REQUEST_TOKEN_IDS="true",  # noqa: S106 - a model's tokens
    )
    assert output == "Hello\n['Hel', 'lo', '']\n"
    plain, streamed = agent.sink.llm_spans()
    assert plain.trace_id != streamed.trace_id
    for span in (plain, streamed):
        assert span.attributes["lightning.rollout.id"] == "rollout-1"
        assert span.attributes["lightning.task.id"] == "task-1"
        assert span.attributes["lightning.prompt_token_ids"] == [151644, 872, 198]
        assert span.attributes["lightning.completion_token_ids"] == [9707, 385, 151645]
        assert span.attributes["lightning.completion_logprobs"] == [-0.25, -1.5, -0.0625]
        arms = [e.attributes for e in span.events if e.name == "feature_flag.evaluation"]
        assert [arm["feature_flag.result.variant"] for arm in arms] == ["careful"]
        assert arms[0]["lightning.propensity"] == 1.0
        assert arms[0]["lightning.policy.version"] == "3"


def test_without_variables_of_ours_the_request_and_the_span_are_the_stock_ones(
    agent: Any,
) -> None:
    (agent.folder / "flags.json").write_text(json.dumps({"flags": {}}))
    agent.run(AGENT)
    assert {tuple(sorted(request)) for request in agent.model_server.requests} == {
        ("messages", "model", "stream")
    }
    for span in agent.sink.llm_spans():
        assert "gen_ai.output.messages" in span.attributes
        assert not [name for name in span.attributes if name.startswith("lightning.")]
        assert "feature_flag.evaluation" not in {event.name for event in span.events}


@pytest.mark.slow
def test_rewards_arrive_as_log_events_of_the_rollout_that_baggage_names(agent: Any) -> None:
    agent.run(REWARDED)
    rewards = [log for log in agent.sink.logs if log.name == "gen_ai.evaluation.result"]
    assert [
        (log.attributes["lightning.rollout.id"], log.attributes["gen_ai.evaluation.score.value"])
        for log in rewards
    ] == [("first", 1.0), ("second", 1.0)]
    assert [span.attributes["lightning.rollout.id"] for span in agent.sink.llm_spans()] == [
        "first",
        "second",
    ]


@pytest.mark.slow
def test_the_stock_switch_turns_us_off(agent: Any) -> None:
    agent.run(
        REWARDED,
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="otel_lightning",
        LIGHTNING_REQUEST_TOKEN_IDS="true",  # noqa: S106 - a model's tokens
    )
    assert len(agent.sink.llm_spans()) == 2
    for span in agent.sink.llm_spans():
        assert not [name for name in span.attributes if name.startswith("lightning.")]
    assert not [r for r in agent.model_server.requests if "return_token_ids" in r]


def test_without_the_sdk_no_request_is_changed(agent: Any) -> None:
    script = """
import openai
messages = [{"role": "user", "content": "Hi"}]
openai.OpenAI().chat.completions.create(model="small", messages=messages)
"""
    variables = {"OTEL_SDK_DISABLED": "true", "LIGHTNING_REQUEST_TOKEN_IDS": "true"}
    process = agent.finish(script, **variables)
    assert (process.returncode, process.stderr) == (0, "")
    [request] = agent.model_server.requests
    assert sorted(request) == ["messages", "model"]
