"""Arms that a flag file applies to the model call of an agent without any flag."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from support.late import Late

from otel_lightning.instrumentation import model_call, policy
from otel_lightning.instrumentation.attributes import ASKED_ARM

openai: Any = Late("openai")
FLAGS = {
    "desk": {
        "state": "ENABLED",
        "variants": {
            "cold": {"temperature": 0.0, "system": "Be exact.", "tools": ["sun"]},
            "warm": {"model": "large", "temperature": 1.0},
        },
        "defaultVariant": "cold",
        "targeting": {"fractional": [["cold", 25], ["warm", 75]]},
        "metadata": {"lightning.policy.version": "3"},
    },
    "the agent's own": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"},
}
TOOLS = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in ("sun", "rain")]
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture
def client(model_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "flags.json"
    path.write_text(json.dumps({"flags": FLAGS}))
    monkeypatch.setenv("LIGHTNING_POLICY", str(path))
    with openai.OpenAI(api_key="none", base_url=model_server.base_url("vllm")) as opened:
        yield opened


def ask(client: Any, task: str, **more: Any) -> Any:
    messages = [SYSTEM, {"role": "user", "content": task}]
    return client.chat.completions.create(model="small", messages=messages, tools=TOOLS, **more)


def find(client: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, arm: str) -> dict[str, Any]:
    """Call in one rollout after another until the arm is drawn; give the span."""
    for number in range(200):
        traced.exporter.clear()
        monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", f"rollout-{number}")
        ask(client, "Oslo")
        if traced.events("openai.chat")[0]["feature_flag.result.variant"] == arm:
            return dict(traced.spans()["openai.chat"])
    raise AssertionError(arm)


def test_an_arm_changes_what_is_sent_and_the_span_says_so(
    client: Any, traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = find(client, traced, monkeypatch, "cold")
    sent = model_server.requests[-1]
    assert sent["messages"][0] == {"role": "system", "content": "Be exact."}
    assert (sent["temperature"], sent["model"]) == (0.0, "small")
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["sun"]
    assert span["lightning.policy.changed"] == ("messages", "temperature", "tools")
    told = json.loads(span["gen_ai.input.messages"])
    assert told[0]["parts"] == [{"type": "text", "content": "Be exact."}]
    assert "Be kind." not in str(told)
    assert [tool["name"] for tool in json.loads(span["gen_ai.tool.definitions"])] == ["sun"]
    assert span["gen_ai.request.temperature"] == 0.0
    (choice,) = traced.events("openai.chat")
    assert choice["lightning.propensity"] == 0.25
    assert choice["lightning.policy.version"] == "3"


def test_another_arm_changes_the_model(
    client: Any, traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = find(client, traced, monkeypatch, "warm")
    assert model_server.requests[-1]["model"] == span["gen_ai.request.model"] == "large"
    assert traced.events("openai.chat")[0]["lightning.propensity"] == 0.75


def test_an_arm_changes_a_call_of_responses_too(
    client: Any, traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
    for number in range(200):
        monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", f"rollout-{number}")
        client.responses.create(
            model="small", instructions="Be kind.", input=f"task {number}", tools=tools
        )
        arm = traced.events("openai.response")[-1]["feature_flag.result.variant"]
        sent = model_server.requests[-1]
        if arm == "cold":
            break
        assert (sent["model"], sent["instructions"]) == ("large", "Be kind.")
    assert (sent["instructions"], sent["temperature"]) == ("Be exact.", 0.0)
    assert [tool["name"] for tool in sent["tools"]] == ["sun"]
    changed = traced.spans()["openai.response"]["lightning.policy.changed"]
    assert changed == ("instructions", "temperature", "tools")


def carrying(arm: str, key: str = "desk") -> Any:
    asked = {"key": key, "arm": arm, "propensity": 0.5, "version": "run-1"}
    return baggage.set_baggage(ASKED_ARM, json.dumps(asked))


def test_an_arm_that_a_request_asks_for_is_served_only_where_that_is_allowed(
    client: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def served(arm: str, key: str = "desk") -> list[dict[str, Any]]:
        traced.exporter.clear()
        token = context.attach(carrying(arm, key))
        try:
            for number in range(20):
                monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", f"rollout-{number}")
                ask(client, "Oslo")
        finally:
            context.detach(token)
        spans = traced.exporter.get_finished_spans()
        return [dict(event.attributes) for span in spans for event in span.events]

    both = {"cold", "warm"}
    assert {one["feature_flag.result.variant"] for one in served("cold")} == both
    monkeypatch.setenv("LIGHTNING_ACCEPT_ARMS", "true")
    found = served("cold")
    assert {one["feature_flag.result.variant"] for one in found} == {"cold"}
    assert {one["lightning.propensity"] for one in found} == {0.5}
    assert {one["lightning.policy.version"] for one in found} == {"run-1"}
    # A variant that the file does not have, and another flag, change nothing.
    assert {one["feature_flag.result.variant"] for one in served("hot")} == both
    assert {one["feature_flag.result.variant"] for one in served("cold", "other")} == both


def test_the_arms_are_drawn_by_their_shares(
    client: Any, model_server: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del traced
    for number in range(120):
        monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", f"one of many {number}")
        ask(client, "Oslo")
    drawn = Counter(request["model"] for request in model_server.requests)
    # 90 of 120 expected, four standard deviations are 19.
    assert 71 <= drawn["large"] <= 109


def test_with_a_secret_nobody_can_name_a_rollout_that_draws_an_arm(
    client: Any, model_server: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server takes the rollout id from the headers of a request, so a stranger can choose it."""
    del traced

    def drawn(rollouts: list[str]) -> list[str]:
        before = len(model_server.requests)
        for rollout in rollouts:
            monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", rollout)
            ask(client, "Oslo")
        return [request["model"] for request in model_server.requests[before:]]

    tried = [f"tried {number}" for number in range(160)]
    chosen = [one for one, model in zip(tried, drawn(tried), strict=True) if model == "small"][:20]
    assert drawn(chosen) == ["small"] * 20
    monkeypatch.setenv("LIGHTNING_POLICY_SECRET", "of this agent")
    with_secret = drawn(chosen)
    # 5 of 20 expected; 14 or more have a probability of 3e-5 (and this test always draws the same).
    assert with_secret.count("small") < 14
    assert drawn(chosen) == with_secret
    monkeypatch.setenv("LIGHTNING_POLICY_SECRET", "of another one")
    assert drawn(chosen) != with_secret


def test_the_calls_of_a_rollout_without_an_id_have_one_arm(
    client: Any, traced: Any, model_server: Any
) -> None:
    for number in range(8):
        messages: list[Any] = [{"role": "user", "content": f"task {number}"}]
        for _ in range(4):
            answer = client.chat.completions.create(model="small", messages=messages)
            messages += [answer.choices[0].message, {"role": "user", "content": "more"}]
    models = [request["model"] for request in model_server.requests]
    assert [set(models[at : at + 4]) for at in range(0, 32, 4)] == [
        {models[at]} for at in range(0, 32, 4)
    ]
    assert len({event["feature_flag.context.id"] for event in traced.events("openai.chat")}) == 8


def test_an_answer_that_is_continued_by_its_id_keeps_its_arm(client: Any, traced: Any) -> None:
    for number in range(6):
        answer = client.responses.create(model="small", input=f"task {number}")
        for _ in range(2):
            answer = client.responses.create(
                model="small", input="more", previous_response_id=answer.id
            )
    arms = [e["feature_flag.context.id"] for e in traced.events("openai.response")]
    assert [arms[at : at + 3] for at in range(0, 18, 3)] == [
        [arms[at]] * 3 for at in range(0, 18, 3)
    ]
    assert len(set(arms)) == 6


def test_without_the_variable_nothing_is_changed(
    client: Any, traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIGHTNING_POLICY")
    ask(client, "Oslo")
    assert model_server.requests[-1]["messages"][0] == SYSTEM
    assert traced.events("openai.chat") == []


def test_a_file_that_is_no_flag_file_is_named_and_the_agent_goes_on(
    client: Any, model_server: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "flags.json").write_text("{}")
    ask(client, "Oslo")
    assert model_server.requests[-1]["messages"][0] == SYSTEM
    assert "flags.json: no flag file" in caplog.text


@pytest.mark.parametrize(
    "broken",
    [
        ["no flag"],
        {"variants": {"a": {"model": "b"}}, "targeting": {"fractional": [["a", "much"]]}},
        {"variants": {"a": {"model": "b"}}, "targeting": {"fractional": [["a", float("nan")]]}},
        {"variants": {"a": {"model": "b"}}, "defaultVariant": "absent"},
        {"variants": {"a": {"tools": "sun"}}, "defaultVariant": "a"},
    ],
    ids=["list", "weight", "NaN", "default", "tools"],
)
def test_a_flag_that_cannot_be_read_affects_no_other_flag(
    client: Any, traced: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: Any
) -> None:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {**FLAGS, "broken": broken}}))
    ask(client, "Oslo")
    assert [event["feature_flag.key"] for event in traced.events("openai.chat")] == ["desk"]
    assert "Flag 'broken' cannot be read" in caplog.text
    assert "stepped aside" not in caplog.text


def test_no_arm_is_recorded_if_the_request_is_sent_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {
        "first": {"variants": {"a": {"model": "large"}}},
        "second": {"variants": {"a": {"system": "Be exact."}}},
    }
    (tmp_path / "flags.json").write_text(json.dumps({"flags": two}))
    monkeypatch.setenv("LIGHTNING_POLICY", str(tmp_path / "flags.json"))
    call = model_call.begin("chat", {"messages": 7})
    assert call
    with pytest.raises(TypeError):
        policy.apply(call, {"messages": 7})
    model_call.end(call)
    assert call.choices == []


@pytest.mark.parametrize("text", ["[]", '{"flags": []}', '{"flags": 1}', "[" * 100_000])
def test_a_file_of_another_form_changes_nothing(
    client: Any, model_server: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path, text: str
) -> None:
    (tmp_path / "flags.json").write_text(text)
    ask(client, "Oslo")
    assert model_server.requests[-1]["messages"][0] == SYSTEM
    assert "stepped aside" not in caplog.text


def test_a_file_that_is_completed_within_the_clocks_step_is_read_again(
    client: Any, traced: Any, tmp_path: Path
) -> None:
    path, whole = tmp_path / "flags.json", json.dumps({"flags": FLAGS})
    for text in (whole[:30], whole):
        path.write_text(text)
        os.utime(path, ns=(1, 1))
        traced.exporter.clear()
        ask(client, "Oslo")
    assert len(traced.events("openai.chat")) == 1
