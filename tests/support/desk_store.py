"""A small store of a support desk, as the demo leaves one: traced, judged, built and learned from.

Traces and judgements go through the real loading and deriving. The learner's tables are filled by
SQL, so that a test of the page needs no learning.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.receive.feedback import read_feedback
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store, open_store

START_NS = 1_800_000_000_000_000_000
SECOND = 10**9
ARMS = ("terse", "friendly", "verbose")
SQL = Path(__file__).parent / "desk_store.sql"
Message = dict[str, Any]


def text_message(role: str, text: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def tool_call(name: str, call_id: str, arguments: object) -> Message:
    part = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part], "finish_reason": "tool_calls"}


def answers(call_id: str, text: str) -> Message:
    part = {"type": "tool_call_response", "id": call_id, "response": text}
    return {"role": "tool", "parts": [part]}


class Trace:
    """A trace that is being written: one rollout of the desk."""

    def __init__(self, number: int, service: str = "desk") -> None:
        self.request = ExportTraceServiceRequest()
        resource = self.request.resource_spans.add()
        resource.resource.attributes.add(key="service.name", value=AnyValue(string_value=service))
        self._spans = resource.scope_spans.add()
        self.number, self.trace_id = number, f"{number + 1:032x}"
        self._time = START_NS + number * 600 * SECOND
        self._count = 0
        self._root = self.span("invoke_agent desk", {"gen_ai.operation.name": "invoke_agent"}, 60)

    def span(
        self, name: str, attributes: dict[str, Any], seconds: float, error: str | None = None
    ) -> Span:
        """Add a span after the one before."""
        self._count += 1
        span = self._spans.spans.add(name=name, kind=Span.SPAN_KIND_CLIENT)
        span.trace_id = bytes.fromhex(self.trace_id)
        span.span_id = f"{(self.number << 20) + self._count:08d}".encode()[-8:]
        if self._count > 1:
            span.parent_span_id = self._root.span_id
        span.start_time_unix_nano = self._time
        span.end_time_unix_nano = self._time + int(seconds * SECOND)
        self._time += int(0.1 * SECOND) if self._count == 1 else int(seconds * SECOND)
        own = {"gen_ai.agent.name": "desk", "lightning.rollout.id": f"rollout-{self.number:04d}"}
        for key, value in {**own, **attributes}.items():
            kind = "int_value" if isinstance(value, int) else "string_value"
            span.attributes.add(key=key, value=AnyValue(**{kind: value}))
        if error:
            span.status.code = 2
            span.status.message = error
        return span

    def call(self, messages: Sequence[Message], answer: Message, error: str | None = None) -> Span:
        """Add a model call."""
        failed = {"error.type": "timeout"} if error else {}
        texts = {} if error else {"gen_ai.output.messages": json.dumps([answer])}
        return self.span(
            "chat model-7",
            {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "model-7",
                "gen_ai.input.messages": json.dumps(list(messages)), **texts, **failed,
                "gen_ai.usage.input_tokens": 100 + 40 * len(messages),
                "gen_ai.usage.output_tokens": len(json.dumps(answer)) // 4,
                "gen_ai.response.id": f"response-{self.number}-{self._count}",
            },
            1.2,
            error,
        )  # fmt: skip

    def choose(self, arm: str, propensity: float) -> None:
        """Add the choice of an arm to the last span."""
        event = self._spans.spans[-1].events.add(name="feature_flag.evaluation")
        event.time_unix_nano = self._spans.spans[-1].start_time_unix_nano
        event.attributes.add(key="feature_flag.key", value=AnyValue(string_value="support-prompt"))
        event.attributes.add(
            key="feature_flag.result.variant", value=AnyValue(string_value=arm)
        )  # fmt: skip
        event.attributes.add(
            key="lightning.propensity", value=AnyValue(double_value=propensity)
        )  # fmt: skip


def desk_trace(number: int) -> Trace:
    """Write a rollout: look the case up, act on it, tell the customer."""
    trace, arm = Trace(number), ARMS[number % 3]
    task = number // 3
    messages = [
        text_message("system", f"You work at a support desk. Be {arm}."),
        text_message("user", f"Where is the parcel of order C{task}?"),
    ]
    steps = [
        tool_call("lookup", "a", {"order": f"C{task}"}),
        tool_call("trace_parcel", "b", {"id": task}),
    ]
    for position, answer in enumerate(
        [*steps, text_message("assistant", f"It is due on Friday. ({arm})")]
    ):
        fails = number % 7 == 6 and position == 1
        trace.call(messages, answer, "The model did not answer in time." if fails else None)
        trace.choose(arm, (0.5, 0.3, 0.2)[number % 3])
        if fails:
            break
        if position < len(steps):
            trace.span(
                "execute_tool",
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": answer["parts"][0]["name"],
                    "gen_ai.tool.call.id": answer["parts"][0]["id"],
                    "gen_ai.tool.call.arguments": json.dumps(answer["parts"][0]["arguments"]),
                    "gen_ai.tool.call.result": "the carrier has it",
                },
                0.3,
            )
            call_id = answer["parts"][0]["id"]
            messages = [*messages, answer, answers(call_id, "the carrier has it")]
    return trace


def judgement(number: int) -> dict[str, Any]:
    """Judge a rollout: terse answers are the best, as a rule."""
    value = float((number * 7 + number // 3) % 10 < (8, 5, 3)[number % 3])
    return {
        "id": f"judged-{number}", "rollout_id": f"rollout-{number:04d}", "name": "task_success",
        "value": value, "task_id": f"ticket-{number // 3}",
        "explanation": "The customer says so." if value else "The customer asked again.",
    }  # fmt: skip


def make_desk_store(path: Path, rollouts: int = 60) -> Path:
    """Make the store: rollouts of three arms on a third as many tasks, with transitions and runs.

    The last two rollouts have no reward.
    """
    traces = [desk_trace(number).request.SerializeToString() for number in range(rollouts)]
    items = json.dumps([judgement(number) for number in range(rollouts - 2)]).encode()
    judged = read_feedback(items, START_NS + rollouts * 600 * SECOND).request.SerializeToString()
    with open_store(path) as store:
        add(store, traces, [judged])
        fill_learned(store)
    return path


def add(store: Store, traces: Sequence[bytes], logs: Sequence[bytes] = ()) -> None:
    """Load requests and derive."""
    requests = [Request("traces", START_NS, body) for body in traces]
    loaded = [*requests, *(Request("logs", START_NS, body) for body in logs)]
    with tempfile.TemporaryDirectory() as folder:
        load(store, loaded, dead_letters=Path(folder))
    while refresh(store):
        pass


def fill_learned(store: Store) -> None:
    """Fill the tables of the learner from the derived ones."""
    store.execute(SQL.read_text())
