"""`lightning-ingest doctor`: find problems that harm learning, with an example and a remedy."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from otel_lightning.collector.ingester_client.http import metrics_of
from otel_lightning.collector.receive.metrics import (
    refused_requests,
    request_count,
    wrong_ports,
)
from otel_lightning.collector.store import Server, Store, StoreError, statement
from otel_lightning.collector.terminal.quantities import number_of

GENAI_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_SWITCHES = {
    "opentelemetry.instrumentation.genai": f"set {GENAI_CONTENT}=span_only",
    "opentelemetry.instrumentation.openai_v2": f"set {GENAI_CONTENT}=true and export logs too",
    "@opentelemetry/instrumentation-openai": f"set {GENAI_CONTENT}=true and export logs too",
    # The other packages with this prefix are those of Traceloop's OpenLLMetry.
    "opentelemetry.instrumentation.": "set TRACELOOP_TRACE_CONTENT=true",
    "@traceloop/": "set TRACELOOP_TRACE_CONTENT=true",
    "openinference.": "unset OPENINFERENCE_HIDE_INPUTS, _OUTPUTS, _INPUT_MESSAGES and the like",
    "@arizeai/": "unset OPENINFERENCE_HIDE_INPUTS, _OUTPUTS, _INPUT_MESSAGES and the like",
    "com.anthropic.claude_code": "set OTEL_LOGS_EXPORTER=otlp and OTEL_LOG_RAW_API_BODIES=1",
    "com.anthropic.sdk": "install opentelemetry-instrumentation-anthropic: the SDK's own tracer"
    " records no content",
    "pydantic-ai": "use InstrumentationSettings(include_content=True)",
    "agent_framework": "set ENABLE_SENSITIVE_DATA=true",
    "semantic_kernel": "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"
    "=true, and install opentelemetry-instrumentation-openai",
    "gcp.vertex.agent": "set ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true",
    "ai": "set recordInputs and recordOutputs in experimental_telemetry",
    "litellm": "unset litellm.turn_off_message_logging",
    "autogen": "install opentelemetry-instrumentation-openai: AutoGen records no model calls",
}
"""How to switch on the recording of content, by prefix of the instrumentation's scope name."""
EMPTY, NO_CALLS = "empty", "no_calls"
PROTOCOL = "set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf accordingly"
NO_REWARDS = (
    "The store has no rewards, and learning needs them: send judgements to /v1/feedback, or let"
    " `lightning-learn judge` give them; the page learn-from-traces lists all ways."
)
ANY_CONTENT = (
    "switch on the recording of messages in that instrumentation; its own documentation names"
    " the setting"
)


class Refusal(NamedTuple):
    """Why requests are refused with one HTTP status, and what to do."""

    why: str
    remedy: str


REFUSALS: Mapping[int, Refusal] = {
    HTTPStatus.BAD_REQUEST: Refusal(
        "neither valid OTLP nor valid feedback",
        "see the reason in that line, and update the sender's exporter"),
    HTTPStatus.UNAUTHORIZED: Refusal(
        "no token, or a wrong one",
        "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN where the agent runs, with the"
        " LIGHTNING_TOKEN of lightning-ingest"),
    HTTPStatus.FORBIDDEN: Refusal(
        "the host name in the URL is not allowed",
        "start lightning-ingest with --allowed-host and that name"),
    HTTPStatus.NOT_FOUND: Refusal(
        "a wrong path",
        "set OTEL_EXPORTER_OTLP_ENDPOINT to the URL without /v1/traces, or"
        " OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to the URL with it"),
    HTTPStatus.METHOD_NOT_ALLOWED: Refusal(
        "over gRPC, for another service than OTLP's traces, logs and metrics",
        "see the sender in that line: it is no exporter of them, or one of another version. A"
        " health check asks GET /readyz on the HTTP port"),
    HTTPStatus.REQUEST_TIMEOUT: Refusal(
        "the body did not arrive in time", "see the network, and send smaller batches"),
    HTTPStatus.LENGTH_REQUIRED: Refusal(
        "no length of the body",
        "let the sender, or a proxy before lightning-ingest, send Content-Length, or the body in"
        " chunks"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Refusal(
        "larger than --max-body",
        "send smaller batches (OTEL_BSP_MAX_EXPORT_BATCH_SIZE), or raise --max-body"),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Refusal(
        "the content type is no form of OTLP",
        "send application/x-protobuf or application/json; Python's exporter does with"
        " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
}  # fmt: skip
"""Statuses after which an exporter drops the request; after 503 it sends it again."""


class ProblemKind(NamedTuple):
    """One kind of problem; the statement `doctor_NAME.sql` counts it."""

    name: str
    noun: str
    """The noun of the counted things, in the singular."""
    fault: str
    """The predicate of that noun; `{kind}` is the column by which the statement groups."""
    remedy: str


PROBLEM_KINDS = (
    ProblemKind(EMPTY, "span", "and log records were received",
            "run an agent that exports OTLP while `lightning-ingest` runs, or load a file by"
            " `lightning-ingest load FILE`; {ports}"),
    ProblemKind(NO_CALLS, "span", "is a model call",
            "instrument the framework or client that calls the model: the page which-package names"
            " the package"),
    ProblemKind("content", "call", "without content, written by {kind}", ""),
    ProblemKind("history", "call",
            "whose text was cut, or whose history is in part stored by the provider only",
            "raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT and --max-value-length; send whole"
            " histories, or record previous_response_id with every call"),
    ProblemKind("parts", "rollout", "with one call that has tool calls or results, so it is"
            " probably a part of a larger rollout",
            "give the calls of a task one lightning.rollout.id:"
            " in Python by `with otel_lightning.instrumentation.rollout(task_id=…)`, or by"
            " LIGHTNING_ROLLOUT_ID for a process that works on one task"),
    ProblemKind("repeated_ids", "span", "not stored, because other spans have their ids",
            "do not call `random.seed()` in the sender, because OpenTelemetry's ids then repeat, or"
            " use otel-lightning's instrumentation, whose ids do not depend on the seed"),
    ProblemKind("rewards", "reward",
            "for a span, response, rollout or trace that was never received",
            "name the span, the response, the rollout or the trace that is judged as it was sent"),
    ProblemKind("words", "reward", "of the name {kind} with a word and no number",
            "nothing is learned from them: send gen_ai.evaluation.score.value as well, or give each"
            " word a number by a rule (the page reward-rules, its example [labels.routing])"),
    ProblemKind("arms", "arm", "of {kind} without a propensity",
            "send lightning.propensity with feature_flag.evaluation, or promote a policy whose"
            " flags have it"),
    ProblemKind("tokens", "call", "without token counts, written by {kind}",
            'for streams ask the provider with stream_options={"include_usage": true}'),
    ProblemKind("unread", "span", "of {kind} on which a reader failed",
            "see the table unread_spans, and report the error with a span"),
    ProblemKind("partly", "call", "of {kind} read only in part: without model, input or answer",
            "use an instrumentation that follows OpenTelemetry's GenAI conventions or"
            " OpenInference, such as opentelemetry-instrumentation-openai"),
    ProblemKind("ahead", "span", "of {kind} that ended after they were received",
            "set the sender's clock (NTP): its rewards and calls are in a wrong order"),
    ProblemKind("clocks", "span", "of {kind} that began before the span that called them",
            "set both clocks (NTP): the steps of a rollout are in a wrong order"),
)  # fmt: skip


class Problem(NamedTuple):
    """One problem found in a store: how many of how many rows have it, an example, a remedy."""

    name: str
    number: int
    total: int
    noun: str
    fault: str
    example: str
    remedy: str

    @property
    def headline(self) -> str:
        """The problem in words and numbers."""
        if self.name == EMPTY:
            return "Nothing was received: the store has no spans and no log records"
        if self.name == NO_CALLS:
            return f"Nothing to learn from: none of {number_of(self.total, self.noun)} {self.fault}"
        return f"{self.number:,} of {number_of(self.total, self.noun)} {self.fault}"


def diagnose(store: Store) -> list[Problem]:
    """Return the problems of this store that harm learning; an empty list if there are none.

    Args:
        store: A direct or served store whose derived tables are up to date.
    """
    problems = [
        _problem(checked, row, store.server)
        for checked in PROBLEM_KINDS
        for row in store.rows(statement(__package__, f"doctor_{checked.name}"))
    ]
    return (_not_received(store.server) if store.server else []) + problems


def lacks_rewards(store: Store) -> bool:
    """Return whether a store has model calls and no reward."""
    return bool(store.query(statement(__package__, "doctor_unrewarded"))["is_so"][0].as_py())


def _not_received(server: Server) -> list[Problem]:
    """Ask the running ingester which requests were lost at the other port, or refused."""
    try:
        text = metrics_of(server)
    except StoreError:  # it asks for a client certificate
        return []
    return [*_wrong_port(server, text), *_refused(text)]


def _wrong_port(server: Server, text: str) -> list[Problem]:
    if not (counts := wrong_ports(text)):
        return []
    wrong = sum(counts.values())
    example = "; ".join(f"{n:,} to the port for {port}" for port, n in counts.items())
    total = request_count(text) + wrong
    fault = f"since the start {_were(wrong)} sent to the port of the other protocol, and lost"
    return [Problem("wrong_port", wrong, total, "request", fault, example, _ports(server))]


def _refused(text: str) -> list[Problem]:
    total = request_count(text)
    return [
        Problem(
            "refused",
            number,
            total,
            "request",
            f"since the start {_were(number)} refused, and lost: {REFUSALS[status].why}",
            f"the log of lightning-ingest has the first one of status {status}, with its sender",
            REFUSALS[status].remedy,
        )
        for status, number in sorted(refused_requests(text).items())
        if status in REFUSALS
    ]


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _ports(server: Server | None) -> str:
    """Say which port takes which protocol: those of the running ingester, or the defaults."""
    if server is None:
        return (
            "let gRPC exporters send to port 4317 and HTTP exporters to port 4318, or to those of"
            f" --grpc and --http if you give them, and {PROTOCOL}"
        )
    http = f"HTTP exporters send to port {server.http.rpartition(':')[2]}"
    if server.grpc is None:
        return f"let {http} and set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf"
    grpc = f"gRPC exporters send to port {server.grpc.rpartition(':')[2]}"
    return f"let {grpc} and let {http}, and {PROTOCOL}"


def _problem(checked: ProblemKind, row: Mapping[str, Any], server: Server | None) -> Problem:
    kind = row["kind"] or "an unnamed sender"
    remedy = _switch(row["kind"]) if checked.name == "content" else checked.remedy
    if checked.name == EMPTY:
        remedy = remedy.format(ports=_ports(server))
    fault, example = checked.fault.format(kind=kind), row["example"]
    return Problem(checked.name, row["n"], row["total"], checked.noun, fault, example, remedy)


def _switch(scope: str | None) -> str:
    """Return how to switch on content for an instrumentation: its longest known prefix decides."""
    switches = [name for name in CONTENT_SWITCHES if (scope or "").startswith(name)]
    # Other scope names begin with "ai" too, so the scope of the Vercel AI SDK must match exactly.
    exact = [name for name in switches if name != "ai" or scope == "ai"]
    return CONTENT_SWITCHES[max(exact, key=len)] if exact else ANY_CONTENT
