"""Input and output types of deriving: received spans and logs, and the rows read from them.

Every attribute value is text, in the form of the store: a string unchanged, any other value as JSON
(numbers, booleans, arrays, key-value lists; bytes as base64). So a list of messages reads the same
whether it was sent as a JSON string or as a structured OTLP value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.tool_failures import tells_failure

Attributes = Mapping[str, str]
Message = dict[str, Any]
"""A message of OpenTelemetry's GenAI conventions: `role`, `parts` and, in outputs,
`finish_reason`."""


MOST_DIGITS = 19
"""Digits of the largest number that an attribute can be."""
MILLISECOND = 1_000_000
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event on a span."""

    name: str
    time_ns: int | None
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Log:
    """One log record. Some packages send GenAI events as log records.

    `event_name` is the record's own name or, if it has none, its attribute `event.name`. `body` is
    text: a string unchanged, any other value as JSON.
    """

    time_ns: int | None
    trace_id: str | None
    span_id: str | None
    event_name: str | None
    body: str | None
    attributes: Attributes
    resource: Attributes
    scope_name: str | None
    observed_ns: int | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: when it happened, when it was observed, and its number in its process.

        Records of equal keys stay in the order in which they were received.
        """
        number = self.attributes.get("event.sequence", "")
        is_number = number.isdecimal() and len(number) <= MOST_DIGITS
        return self.time_ns or 0, self.observed_ns or 0, int(number) if is_number else 0


class Span(NamedTuple):
    """One span as received, with the log records that carry its span id."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_ns: int | None
    end_ns: int | None
    status_code: str
    status_message: str | None
    scope_name: str | None
    resource: Attributes
    attributes: Attributes
    events: tuple[Event, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """The spans that the span links to: (trace id, span id) of each."""
    logs: tuple[Log, ...] = ()
    memory: MessageMemory | None = None
    """The messages of spans that were read before. Equal messages share one copy."""


class History(NamedTuple):
    """The hashes of a call's messages."""

    prefixes: list[str]
    """Hashes of the longest beginnings of the input that end with the assistant's turn."""
    with_answer: list[str]
    """Hashes of the input with each choice of the output. After tools, the hash of the text alone
    is among them: many agents keep only what the user and the assistant said."""
    input_hash: str | None
    """A hash of the whole input, reasoning included and ids of tool calls left out, if there is
    one."""
    has_tools: bool
    """Whether tool calls or their responses are among the messages."""
    unrequested_ids: list[str]
    """The ids of the responses in the input whose requests are not in it."""
    tool_call_ids: tuple[str | None, ...] = ()
    """The ids of the tool calls in the output."""
    has_responses: bool = False
    """Whether the input has responses to tool calls."""
    is_paired: bool = True
    """Whether each response in the input answers a tool call of the assistant's turn before it."""


@dataclass(slots=True)
class LlmCall:
    """One model call: a row of `llm_calls`. Unknown is None, never 0 or ''."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int | None
    end_ns: int | None
    dialect: str
    service_name: str | None = None
    rollout_id: str | None = None
    step: int | None = None
    agent_name: str | None = None
    operation: str | None = None
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    request_params: dict[str, Any] = field(default_factory=dict)
    tool_definitions: list[Any] | None = None
    input_messages: list[Message] | None = None
    output_messages: list[Message] | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cost: float | None = None
    """The cost of the call as the instrumentation reports it, in the instrumentation's currency."""
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    completion_logprobs: list[float] | None = None
    conversation_id: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    content: str = "absent"
    merged_span_ids: Sequence[str] = ()
    state_hash: str | None = None
    scope_name: str | None = None
    """The scope of the span: the instrumentation that wrote it."""
    is_broken_off: bool = False
    """Whether the answer was streamed, and the stream did not end: the client left it."""
    lost_ids: bool = False
    """Whether the instrumentation drops the ids of tool calls, or writes different ones."""
    lost_system: bool = False
    """Whether the input may lack the instructions of the system, so that no other input begins with
    the same messages."""
    late_end: bool = False
    """Whether the recorded end may be later than the answer, so that the next call may have started
    before it."""
    lost_arguments: bool = False
    """Whether the instrumentation may have lost the arguments of tool calls, or the text beside
    them; then they are looked for in later histories."""
    lost_answers: bool = False
    """Whether the instrumentation loses whole answers, which later inputs repeat."""
    from_executions: bool = False
    """Whether tool calls of the answer are known from their executions only."""
    answered_at: int | None = None
    """Where the call's own answer may stand in its input, if the input may have been written late;
    see `late_inputs`."""
    merged_places: Sequence[tuple[str, str]] = ()
    """(trace id, span id) of each of `merged_span_ids`. A span id is unique only in its trace."""
    packed: tuple[bytes | None, bytes | None] | None = None
    """The input and output messages as JSON instead of the two fields above; see `packing`."""
    history: History = field(
        default=History([], [], None, has_tools=False, unrequested_ids=[]), compare=False
    )
    """The hashes of the messages; set when the call is read, and when its messages change."""

    @property
    def latest_start_ns(self) -> int:
        """The latest time at which the call may have started, before its end.

        JavaScript's spans start at whole milliseconds, rounded down, and end at exact times. So the
        end of one call may seem to come after the start of the next.
        """
        start = self.start_ns or 0
        if start % MILLISECOND:
            return start
        return max(start, min(start + MILLISECOND - 1, (self.end_ns or start) - 1))

    @property
    def has_completion(self) -> bool:
        """Whether the answer of the model is known: as messages or as token ids.

        Calls without it are not learned from.
        """
        answer = self.packed[1] if self.packed else self.output_messages
        return bool((answer and not self.from_executions) or self.completion_token_ids)


@dataclass(slots=True)
class ToolCall:
    """One execution of a tool: a row of `tool_calls`. `arguments` and `result` are JSON values."""

    name: str | None
    trace_id: str | None = None
    span_id: str | None = None
    rollout_id: str | None = None
    llm_span_id: str | None = None
    tool_call_id: str | None = None
    arguments: Any = None
    result: Any = None
    error_type: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    source: str = "span"

    @property
    def told_error(self) -> bool | None:
        """Whether the result says that the tool failed; None if it does not say."""
        return tells_failure(self.result)


@dataclass(slots=True)
class Retrieval:
    """One search for documents, or one reranking of documents: a row of `retrievals`."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    kind: str
    """`retriever` or `reranker`."""
    name: str | None
    start_ns: int | None
    end_ns: int | None
    query: str | None = None
    documents: list[dict[str, Any]] | None = None
    """Each has `id`, `content`, `score` and `metadata`; unknown ones are left out."""
    error_type: str | None = None
    rollout_id: str | None = None
    llm_span_id: str | None = None
    """Span id of the model call that used the documents."""

    @property
    def scores(self) -> list[float | None] | None:
        """The score of each document, if any has one."""
        scores = [document.get("score") for document in self.documents or ()]
        return scores if any(score is not None for score in scores) else None


@dataclass(slots=True)
class AgentRun:
    """One run of one agent inside a rollout: a row of `agent_runs`."""

    trace_id: str
    span_id: str
    name: str | None
    kind: str
    parent_span_id: str | None
    start_ns: int | None
    end_ns: int | None
    rollout_id: str | None = None
    conversation_id: str | None = None
    tool_definitions: list[Any] | None = None
    """Tools that the agent may use, if its own span states them. Its calls inherit them."""
    error: tuple[str | None, str | None] = (None, None)
    """Type and message of the error that ended the run; see `unanswered_calls`."""
    messages: list[Message] | None = None
    """The messages of a run that failed, if its span states them; see `failed_inputs`."""


Row = LlmCall | ToolCall | AgentRun | Retrieval
"""A row that a dialect reads from a span."""
Reader = Callable[[Span], Row | None]
"""Reads a span of one kind; None if the span only groups other spans."""


@dataclass(slots=True)
class Reward:
    """One reward as received: a row of `reward_events`, which the view `rewards` is built from."""

    reward_id: str
    name: str
    value: float | None
    label: str | None = None
    explanation: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    response_id: str | None = None
    rollout_id: str | None = None
    task_id: str | None = None
    source: str | None = None
    time_ns: int | None = None
    placed_trace_id: str | None = None
    """The trace that is judged, if that is not the carrier's, which is then in `trace_id`."""
    placed_span_id: str | None = None


@dataclass(slots=True)
class Arm:
    """One value of a feature flag that was in force for a span: a row of `arms`."""

    trace_id: str | None
    span_id: str | None
    key: str
    arm: str
    propensity: float | None = None
    policy_version: str | None = None
    time_ns: int | None = None
    rollout_id: str | None = None


@dataclass(slots=True)
class Derived:
    """All rows of a closed set of traces (no trace outside is tied to it), in a stable order."""

    llm_calls: list[LlmCall] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    agent_runs: list[AgentRun] = field(default_factory=list)
    retrievals: list[Retrieval] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)
    """Rollout id to task id, from `lightning.task.id`."""
    tasks_stated_by: dict[str, str] = field(default_factory=dict)
    """Rollout id to the trace that states its task id."""
    unread: dict[tuple[str, str], str] = field(default_factory=dict)
    """(trace id, span id) of each span whose reader failed, with the error text."""


def described(error: Exception) -> str:
    """Return the reason that `unread` states for a span or trace that raised this error."""
    return f"{type(error).__name__}: {error}"
