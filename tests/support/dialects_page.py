"""Write docs/reference/dialects.md from what the conformance test finds in recorded captures.

To write it anew: `PYTHONPATH=tests python -m support.dialects_page`. A test fails until it is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from otel_lightning.collector.derive.assemble import derive
from support.captures import load
from support.facts import facts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "dialects.md"
DATA = ROOT / "tests" / "data"
COLUMNS = {
    "calls": ("call",),
    "messages": ("input texts", "output texts"),
    "tool calls": ("input tool calls", "output tool calls"),
    "tool results": ("input tool results",),
    "executions": ("execution",),
    "tools": ("tools",),
    "response id": ("response_id",),
    "finish reason": ("finish_reason",),
    "usage": ("input_tokens", "output_tokens"),
    "token ids": ("prompt_token_ids", "completion_token_ids"),
    "logprobs": ("completion_logprobs",),
}
HEAD = """\
# Dialects

What can be learned from what each instrumentation sends. This page is generated from the \
conformance test's own result: recordings of real instrumentations, compared fact by fact with \
what the provider and the tools logged (`tests/support/dialects_page.py` writes it).

**yes**: on the wire in every recording, and read right. **partly**: missing from some recordings \
(their number, of how many facts, behind it), because the sender left it out. **no**: never on \
the wire. **-**: nothing that was recorded could have had it. Nothing is guessed: what is not on \
the wire is NULL.

"""
TAIL = """
- Fine-tuning on text (`rft`, `awr`, `dpo`, `kto`) needs messages, and tool calls where there are \
tools. Where they are missing, `content` says `absent`, `redacted` or `truncated`.
- Fine-tuning on exact tokens needs token ids, and importance weights need logprobs. Few dialects \
carry them; the instrumentation that comes with this project adds both to any of them.
- Arms, rewards and rollout ids do not depend on the dialect: they are events and attributes of \
their own.
- Langfuse's SDK sends to a path of its own: set `LANGFUSE_OTEL_TRACES_EXPORT_PATH=v1/traces` \
beside `LANGFUSE_BASE_URL`. Of streamed answers with several choices it joins the texts.
- Anthropic's SDK records each call of LangChain once more, without content; of a streamed call, \
only time, model and output tokens tell that it is the same. If several calls at once have equal \
counts, both records stay.
- Logfire wrote the response id of OpenAI's streamed answers on neither of its two spans when \
`logfire` was recorded, and that of Anthropic's on one; where one has it, it is read. A reward \
that names the response finds no call without it; let it name the rollout, the trace or the span.
- Some packages record no model calls of some frameworks: OpenInference for CrewAI and Haystack 3, \
Traceloop for Agno 3, CrewAI and LlamaIndex 0.14, and the conventions' own packages for Agno, \
LlamaIndex and smolagents 1.2b0. Trace the model's client beside them, for example with the \
packages of [this page](../how-to/which-package.md). Haystack's own tracing has them all.
- LiteLLM's proxy loses the tool calls and results in the input of the Responses API, and gives \
the provider's response ids in an encrypted form, which is what its clients get. Traceloop for \
JavaScript loses the answers of Responses that are streamed or call tools. Traceloop for \
`google-genai` keeps the last piece of a streamed answer and does not say that it was streamed, so \
the `content` of all its texts is `truncated`. The conventions' own package for OpenAI \
leaves out `previous_response_id`, so a history that the provider stores is not known.
- Traceloop for Haystack 2 writes no messages and no models; as the answer it writes the name of a \
field, which is not read. OpenInference for the Claude Agent SDK for TypeScript writes runs and \
executions, and no model calls.
- Codex (`[otel]` with both `exporter` and `trace_exporter` in its `config.toml`) sends the \
model, the token counts and the error of each request, and what its tools were given and \
returned, but no messages. Without `trace_exporter` it sends log records alone, which are not \
read. Gemini CLI sends whole messages if `telemetry.traces` and `telemetry.logPrompts` are set, \
and no response ids.
- Claude Code and the Claude Agent SDK (with `CLAUDE_CODE_ENABLE_TELEMETRY=1`, \
`CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1`, and `otlp` as `OTEL_TRACES_EXPORTER` and \
`OTEL_LOGS_EXPORTER`) send usage and runs; with `OTEL_LOG_RAW_API_BODIES=1` also whole messages, \
tools and response ids, up to 60 KB of each request and response: above it their `content` is \
`truncated`. Reasoning is not sent, and nothing of a request that failed but its error. The calls \
that name a session are traces of their own, without messages. `OTEL_LOG_TOOL_CONTENT=1` adds what \
tools returned. Version 2.1.197 does not say which request is whose where several run at once; \
then only the responses are read.
- GitHub Copilot CLI (with `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`) writes of \
each call's input only what is new. Within one run of the agent the rest is known from the calls \
before; in later turns of a session it is not, and their `content` is `truncated`.
- Traceloop for Ollama loses the tool calls of answers, so a conversation without an id falls \
apart into several rollouts; OpenInference for Ollama has them. OpenInference for Instructor \
writes no model calls, only functions around them; trace the model's client beside it. \
LlamaIndex's own `llama-index-observability-otel` cuts all texts after 200 characters and names \
no model, so nothing of it is read. Traceloop for LlamaIndex in JavaScript (0.27.0) loses the tool \
calls and calls their results the user's words, so the `content` of both calls is `truncated`.
- Future AGI's traceAI writes no response ids, finish reasons and reasoning of chat completions, \
and of a streamed answer only the text, so its `content` is `truncated`. For LangChain it leaves \
the tool calls out of inputs.
- Judgment's SDK (`judgeval`) sends a span more than once while it runs, and the first is kept, \
which may lack what a tool returned; the next call's input has it. Of a streamed answer it has \
only the text, so its `content` is `truncated`.
- If Google's client runs tools by itself (automatic function calling), OpenInference for \
`google-genai` writes its several requests as one call: the last answer, with all that came before \
as its input.
- Mastra 1 through `@mastra/arize` writes no token counts, ids and finish reasons of streamed \
calls, and of a call that failed only that the agent's run failed.
- VoltAgent 2 writes one span for all model calls of a run, without their answers, so only the \
executions of its tools are read.
- Traceloop's instrumentation of LangChain for JavaScript (0.27.0) writes no tool calls, no tool \
definitions and no response ids, and each span is a trace by itself; that of OpenInference has them.
- Monocle writes no response ids, no tool definitions, no arguments of streamed tool calls, and of \
LangChain's answers only the first tool call. Coralogix's package for the OpenAI Agents SDK writes \
no calls of chat completions models. OpenInference for Google ADK 2 writes all calls of one run of \
an agent onto one span, so only the last is known; ADK's own spans have them all. OpenInference's \
processor for Strands joins the results of parallel tools into one, with the id of the last.
- NVIDIA's NeMo Agent Toolkit 1.9 sent, of an agent that calls tools, only the first model call of \
each run when it was recorded, and no executions, so trace the model's client beside it. It adds \
`additionalProperties: false` and `strict` to the parameters of every tool; both are left out.
- Packages for Bedrock (the conventions' own and Traceloop) leave cached tokens out of the input \
tokens. They are added only where the total of all tokens is beside them.
- Elastic's distribution (EDOT) drops the attributes that a span starts with, so only the name of \
the span tells the requested model, its parameters are unknown, and a call that failed has no row; \
with `OTEL_TRACES_SAMPLER=always_on` it sends all of them. Google ADK writes the reasoning of \
models behind LiteLLM as text of the answer, and adds their reasoning tokens to output tokens that \
have them already.
- Splunk's packages for OpenAI and LangChain, and Traceloop for Mistral and Together, lose the \
tool calls of an input (that for LangChain and Traceloop those of answers, too), so its `content` \
is `truncated` where tools answered, and a conversation without an id falls apart into several \
rollouts. Splunk's for LangChain calls every message the user's; Traceloop for Mistral writes no \
inputs.
- OpenLIT for Python leaves messages without text out of an input, and with them what the model \
asked its tools for. Below one span the calls before tell it; in an agent without any span around \
its calls nothing does, so their `content` is `truncated`. OpenLIT loses the tool calls and \
results in the input of Responses, too; for JavaScript (1.15.0) also the assistant's texts in it \
and the tool calls of its answers (`truncated`), and it says that a streamed response that was \
cut off is complete.
- Netra writes no ids of responses and no tool definitions. Of Responses it writes no finish \
reasons and no ids of tool calls.
- If both LangChain and the OpenAI client are instrumented in JavaScript, by OpenInference or \
Traceloop, a call may be recorded twice without a shared id: OpenInference's streamed calls and \
all of Traceloop's then have two rows. Instrument one of the two. LangChain for JavaScript adds \
Anthropic's first count of output tokens to the last one in streams.
- OpenInference for JavaScript, Langfuse and Traceloop join the texts of a streamed answer with \
several choices. Ax writes no content. Qwen Code \
(`QWEN_TELEMETRY_INCLUDE_SENSITIVE_SPAN_ATTRIBUTES=true`) sends whole messages.
- Google's ADK for JavaScript writes nothing of a call that failed, and of a streamed call that \
asks for tools only usage and `STOP`, so its finish reason is not known. Strands for TypeScript \
writes an answer that was cut off at its token limit as an error (with Anthropic's models, the \
SDK's own record tells that it is none), names no tool definitions, and leaves Anthropic's cached \
tokens out of the input tokens, which the record of Anthropic's own SDK beside it has. LangWatch's \
SDK for JavaScript writes what its user sets. EDOT for Node.js (with \
`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`) writes no tool definitions, and says \
`stop` of a response that was cut off. Sentry 11 and Braintrust's SDK 3 export none of their spans \
by OTLP; Sentry 10 does. Axiom's SDK writes all model calls inside one `withSpan` onto its span, \
with the sum of their tokens; outside of it, the tool calls of an answer are written into the \
input. OpenInference for OpenAI and for the OpenAI Agents SDK in JavaScript writes a response that \
was cut off as an error.
- Packages of languages that cannot run here are read as their source writes their spans, without \
a recording: Rig 0.42 (Rust; content with `record_content_telemetry` only), Koog (Kotlin; no \
finish reasons and ids), OpenInference for LangChain4j (Java), Microsoft.Extensions.AI (.NET) and \
Eino through APMPlus (Go; its inputs lose tool calls). The newest span callbacks of Eino \
(`callbacks/otel`) write no content. Spring AI 2 (Java) writes texts alone: what the model asked \
its tools for is known from the executions that follow, and the `content` of both calls is \
`truncated`.
- OpenCode 1.18 (`experimental.openTelemetry` in its configuration) sends whole messages as \
Vercel's AI SDK does. Mastra 1 writes no reasoning of streamed answers on the spans of their \
calls, AI SDK 5 none at all, and AI SDK 7 a tool's error without the object around it that \
OpenAI's models get. Inngest's AgentKit 0.13 and BeeAI 0.1.30 for TypeScript write no spans of \
their calls: OpenInference's package for BeeAI ends at 0.1.13. Traceloop's SDK for JavaScript \
(0.27.0) loses the tool calls of answers that the AI SDK streams; if the executions came after the \
call, they are taken from these, and `content` is `truncated`.
- A dialect that is not listed but follows OpenTelemetry's GenAI conventions is read as `semconv`.
- Spans of a vendor's own, with a type, an input and an output under one prefix, are read as \
`observed`, whatever the prefix.
"""


def page(data: Path = DATA) -> str:
    """Return the page for a folder of captures."""
    names = ["recorded with", "read as", *COLUMNS]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += [row(folder) for folder in sorted(data.iterdir()) if any(folder.glob("*.truth.json"))]
    return HEAD + "\n".join(lines) + "\n" + TAIL


def row(folder: Path) -> str:
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    families: Counter[str] = Counter()
    for truth in sorted(folder.glob("*.truth.json")):
        capture = load(truth)
        families.update(call.dialect for call in derive(capture.spans, capture.logs).llm_calls)
        for fact in facts(capture):
            verdicts[fact.name][fact.verdict] += 1
    cells = [cell(verdicts[name] for name in of) for of in COLUMNS.values()]
    return f"| `{folder.name}` | {', '.join(sorted(families)) or '-'} | {' | '.join(cells)} |"


def cell(counted: Iterable[Counter[str]]) -> str:
    total = sum(counted, Counter[str]())
    right, absent = total["right"], total["not on the wire"] + total["missed"]
    if not right:
        return "no" if absent else "-"
    return f"partly ({absent} of {right + absent})" if absent else "yes"


if __name__ == "__main__":
    PAGE.write_text(page())
