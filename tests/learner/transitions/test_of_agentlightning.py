"""What agentlightning 0.3's own adapter gets wrong, from its own spans over the wire."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.transitions.make import Settings, make_transitions

SECOND = 10**9
START = 1_800_000_000 * SECOND
ROLLOUT = {"agentlightning.rollout_id": "ro-1"}


def span(second: int, name: str, attributes: dict[str, Any]) -> Span:
    made = Span(
        trace_id=b"\x01" * 16,
        span_id=(second + 1).to_bytes(8, "big"),
        parent_span_id=b"\xff" * 8,
        name=name,
        start_time_unix_nano=START + second * SECOND,
        end_time_unix_nano=START + second * SECOND + SECOND // 2,
    )
    for key, value in attributes.items():
        kind = "double_value" if isinstance(value, float) else "string_value"
        setattr(made.attributes.add(key=key).value, kind, value)
    return made


def call(second: int, prompt: str = "hello") -> Span:
    said = {
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": f"chatcmpl-{second}",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": prompt,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": f"answer {second}",
        "gen_ai.completion.0.finish_reason": "stop",
    }
    return span(second, "openai.chat.completion", said)


def reward(second: int, value: float, linked_to: int | None = None) -> Span:
    said: dict[str, Any] = {
        "agentlightning.reward.0.name": "primary",
        "agentlightning.reward.0.value": value,
    }
    if linked_to is not None:
        said["agentlightning.link.0.key_match"] = "gen_ai.response.id"
        said["agentlightning.link.0.value_match"] = f"chatcmpl-{linked_to}"
    return span(second, "agentlightning.annotation", said)


def rewards_of(tmp_path: Path, *spans: Span, deliveries: int = 1) -> list[float]:
    """Send spans, learn from them, and return the reward of each transition in order of step."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for key, value in ROLLOUT.items():
        group.resource.attributes.add(key=key).value.string_value = value
    group.scope_spans.add().spans.extend(spans)
    body = Request("traces", START, request.SerializeToString())
    path = tmp_path / "traces.duckdb"
    with open_store(path) as store:
        for _ in range(deliveries):
            load(store, [body], dead_letters=tmp_path)
        while refresh(store):
            pass
    make_transitions(str(path), Settings())
    with open_store(path, create=False) as store:
        rows = store.query("SELECT reward FROM transitions ORDER BY rollout_id, step")
    return [row["reward"] for row in rows.to_pylist()]


def test_two_rewards_after_two_calls_stay_behind_the_second(tmp_path: Path) -> None:
    # agentlightning gives 0.1 to B and 1.0 to A, the reverse of what happened.
    assert rewards_of(tmp_path, call(0), call(1), reward(2, 0.25), reward(3, 1.0)) == [0, 1.25]


def test_reward_after_each_of_two_calls_stays_with_its_call(tmp_path: Path) -> None:
    spans = call(0), reward(1, 0.1), call(2), reward(3, 1.0)
    assert rewards_of(tmp_path, *spans) == [0.1, 1.0]


def test_reward_linked_to_the_second_of_three_calls_stays_there(tmp_path: Path) -> None:
    spans = call(0), call(1), call(2), reward(3, 0.5, linked_to=1)
    assert rewards_of(tmp_path, *spans) == [0, 0.5, 0]


def test_reward_after_each_of_five_calls_and_one_at_the_end_are_all_kept(tmp_path: Path) -> None:
    steps = [made for i in range(5) for made in (call(2 * i), reward(2 * i + 1, 0.125 * (i + 1)))]
    assert rewards_of(tmp_path, *steps, reward(20, 4.0)) == [0.125, 0.25, 0.375, 0.5, 4.625]


def test_spans_that_are_delivered_twice_count_once(tmp_path: Path) -> None:
    spans = call(0), reward(1, 0.5), call(2), reward(3, 1.0)
    assert rewards_of(tmp_path, *spans, deliveries=2) == [0.5, 1.0]


def test_best_of_three_answers_to_one_prompt_stay_three_transitions(tmp_path: Path) -> None:
    spans = [call(i, prompt="the same") for i in range(3)]
    judged = [reward(3 + i, float(i), linked_to=i) for i in range(3)]
    assert rewards_of(tmp_path, *spans, *judged) == [0, 1, 2]


def test_missing_reward_is_no_row_and_not_a_zero(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No rollout in the store has a reward"):
        rewards_of(tmp_path, call(0), call(1))
