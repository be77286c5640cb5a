"""What docs/how-to/trace-your-agent.md shows works as shown."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/trace-your-agent.md"
BLOCKS = re.findall(r"```(\w+)[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)
SCRIPTS = {
    name: next(text for language, text in BLOCKS if language == "python" and sign in text)
    for name, sign in {
        "plain": "print(answer",
        "rollout": "with rollout(",
        "baggage": "set_baggage",
        "arms": "FlagdProvider",
        "reward": "evaluation_result",
        "code": "LightningInstrumentor",
    }.items()
}
FLAGS, POLICY = (text for language, text in BLOCKS if language == "json")


def test_every_script_on_the_page_is_tried_here() -> None:
    shown = [text for language, text in BLOCKS if language == "python"]
    assert sorted(shown) == sorted(SCRIPTS.values())


def test_an_agent_is_traced_with_its_messages(agent: Any) -> None:
    assert agent.run(SCRIPTS["plain"]) == "Hello\n"
    (span,) = agent.sink.llm_spans()
    assert "Hello" in span.attributes["gen_ai.output.messages"]


@pytest.mark.slow
def test_content_can_be_kept_out(agent: Any) -> None:
    agent.run(SCRIPTS["plain"], TRACELOOP_TRACE_CONTENT="false")
    (span,) = agent.sink.llm_spans()
    assert not [name for name, value in span.attributes.items() if "Hello" in str(value)]


@pytest.mark.slow
def test_baggage_tells_rollouts_of_one_process_apart(agent: Any) -> None:
    agent.run(SCRIPTS["baggage"], LIGHTNING_ROLLOUT_ID="of the process")
    assert [
        (span.attributes["lightning.rollout.id"], span.attributes["lightning.task.id"])
        for span in agent.sink.llm_spans()
    ] == [("run-17-4711", "ticket-4711"), ("run-17-4712", "ticket-4712")]


@pytest.mark.slow
def test_one_line_tells_rollouts_of_one_process_apart(agent: Any) -> None:
    agent.run(SCRIPTS["rollout"])
    spans = agent.sink.llm_spans()
    assert [s.attributes["lightning.task.id"] for s in spans] == ["ticket-4711", "ticket-4712"]
    assert len({span.attributes["lightning.rollout.id"] for span in spans}) == 2


@pytest.mark.slow
def test_a_flag_file_changes_the_call_of_an_agent_without_flags(agent: Any) -> None:
    (agent.folder / "policy.json").write_text(POLICY)
    agent.run(SCRIPTS["plain"], LIGHTNING_POLICY="policy.json")
    (span,) = agent.sink.llm_spans()
    assert span.attributes["lightning.policy.changed"] in (["messages", "temperature"], ["model"])
    (event,) = (event for event in span.events if event.name == "feature_flag.evaluation")
    assert event.attributes["lightning.propensity"] == 0.5


@pytest.mark.slow
def test_the_arm_is_recorded_with_its_propensity(agent: Any) -> None:
    (agent.folder / "flags.json").write_text(FLAGS)
    agent.run(SCRIPTS["arms"])
    (span,) = agent.sink.llm_spans()
    (event,) = (event for event in span.events if event.name == "feature_flag.evaluation")
    arm = event.attributes["feature_flag.result.variant"]
    assert event.attributes["lightning.propensity"] == {"brief": 0.34, "careful": 0.66}[arm]
    prompt = {"brief": "Be brief.", "careful": "Think before you answer."}[arm]
    assert agent.model_server.requests[0]["messages"][0]["content"] == prompt


@pytest.mark.slow
def test_the_reward_names_the_response(agent: Any) -> None:
    agent.run(SCRIPTS["reward"])
    (reward,) = (log for log in agent.sink.logs if log.name == "gen_ai.evaluation.result")
    (span,) = agent.sink.llm_spans()
    assert reward.attributes["gen_ai.response.id"] == span.attributes["gen_ai.response.id"]
    assert reward.attributes["gen_ai.evaluation.score.value"] == 1.0


@pytest.mark.slow
def test_an_agent_can_instrument_itself(agent: Any) -> None:
    agent.run(SCRIPTS["code"], under=(), LIGHTNING_ROLLOUT_ID="rollout-1")
    (span,) = agent.sink.llm_spans()
    assert span.attributes["lightning.rollout.id"] == "rollout-1"
