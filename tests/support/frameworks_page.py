"""The page that says which package traces which framework, from the tests that run each.

`PYTHONPATH=tests python -m support.frameworks_page` writes it.
"""

import json
import re
from pathlib import Path

from support.agent_trials import AGENTS, pins_of
from support.frameworks import FRAMEWORKS, PLACE, Framework

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "which-package.md"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"
HEAD = """# Which package for which framework

Each row of the tables of frameworks is run by `make test-frameworks`, with the versions that the
row names: an unchanged agent works on {row} tasks in a row and {once} at once, of one or two turns,
with two tools. One task's tool fails, and for one the model server answers with an error.
Afterwards `llm_calls`, `tool_calls` and `rollouts` equal what the model server and the tools
logged, apart from the gaps below. Messages, tools and token counts are recorded unless a
[content switch](trace-your-agent.md#choose-what-is-recorded) keeps content out.

## Python

Copy the lines for your framework, then run the agent as usual: `python agent.py`.

| framework | tried with | lines to copy |
|---|---|---|
"""
JAVASCRIPT = """
## JavaScript

Agents in JavaScript send OTLP by themselves and need no package of ours. Install the packages, put
the file `tracing.mjs` beside the agent, and run `node --import ./tracing.mjs agent.mjs`.

| framework | tried with | lines to copy |
|---|---|---|
"""
CODING_AGENTS = """
## Coding agents

They send OTLP by themselves. A test reads recordings of them; what each leaves out is on the page
[dialects](../reference/dialects.md#coding-agents).

| agent | what to set |
|---|---|
| Claude Code, Claude Agent SDK | `export CLAUDE_CODE_ENABLE_TELEMETRY=1 CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1`<br>`export OTEL_TRACES_EXPORTER=otlp OTEL_LOGS_EXPORTER=otlp`<br>`export OTEL_LOG_RAW_API_BODIES=1 OTEL_LOG_TOOL_CONTENT=1`<br>`export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` |
| Codex | in `~/.codex/config.toml`, below `[otel]`:<br>`exporter = { otlp-http = { endpoint = "http://localhost:4318/v1/logs", protocol = "binary" } }`<br>`trace_exporter = { otlp-http = { endpoint = "http://localhost:4318/v1/traces", protocol = "binary" } }` |
| Gemini CLI, GitHub Copilot CLI, Qwen Code | the settings [on that page](../reference/dialects.md#coding-agents) |
"""  # noqa: E501  rows of a table
CLIENTS = """
## Clients of other providers

Each row was run by hand with the versions that it names: an agent that works on tasks with tools,
one of which fails, and a call that the provider refuses. Its calls, tools and rollouts equalled
what a server that speaks the provider's protocol had logged, without streaming. What else each
package leaves out is on the page [dialects](../reference/dialects.md#what-senders-leave-out).

| client | tried with | lines to copy | not recorded |
|---|---|---|---|
| Amazon Bedrock, Converse | `boto3` 1.44.8, `opentelemetry-instrumentation-genai-bedrock` 1.3b0 | `pip install otel-lightning opentelemetry-instrumentation-genai-bedrock`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318`<br>`export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only` | responding models |
| Amazon Bedrock, Converse, without further variables | `boto3` 1.44.8, `openinference-instrumentation-bedrock` 0.1.61 | `pip install otel-lightning openinference-instrumentation-bedrock`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | |
| Cohere | `cohere` 7.3.1, `openinference-instrumentation-cohere` 0.1.15 | `pip install otel-lightning openinference-instrumentation-cohere`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | |
| Gemini | `google-genai` 3.6.1, `openinference-instrumentation-google-genai` 1.4.14 | `pip install otel-lightning openinference-instrumentation-google-genai`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | requested models of calls that were answered |
| Groq | `groq` 1.7.0, `opentelemetry-instrumentation-groq` 0.62.4 | `pip install otel-lightning opentelemetry-instrumentation-groq`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | |
| Mistral | `mistralai` 3.7.0, `openinference-instrumentation-mistralai` 2.2.2 | `pip install otel-lightning openinference-instrumentation-mistralai`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | |
| Ollama | `ollama` 0.6.3, `openinference-instrumentation-ollama` 0.1.13 | `pip install otel-lightning openinference-instrumentation-ollama`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | Ollama has no response ids and no ids of tool calls |
| Together | `together` 3.1.1, `openinference-instrumentation-together` 0.1.13 | `pip install otel-lightning openinference-instrumentation-together`<br>`export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318` | |
"""  # noqa: E501  rows of a table
FOOT = """
Port 4318 takes OTLP over HTTP and port 4317 takes gRPC. With another framework that uses the
`openai` client, such as LangChain with `langchain-openai`, the same lines work. For a client of
another provider, the log names the package to install. [Dialects](../reference/dialects.md) lists
more instrumentations that are read. If nothing arrives, run `lightning-ingest doctor`.
"""


def versions(framework: Framework) -> str:
    """Return the framework's own packages, each with the version that is tried."""
    text = pins_of(framework).read_text()
    if framework.javascript:
        pins = {
            path.removeprefix("node_modules/"): package.get("version")
            for path, package in json.loads(text)["packages"].items()
        }
    else:
        pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    plain = (package.partition("[")[0] for package in framework.packages)
    return ", ".join(f"`{package}` {pins[package]}" for package in plain)


def row(framework: Framework) -> str:
    """Write the row of one framework."""
    own_package = () if framework.javascript else ("otel-lightning",)
    install = "npm install" if framework.javascript else "pip install"
    exports = [ENDPOINT, *(f"{name}={value}" for name, value in framework.variables.items())]
    lines = [f"{install} {' '.join((*own_package, *framework.instrumentation))}"]
    lines.append(f"export {' '.join(exports)}")
    copied = "<br>".join(f"`{line}`" for line in lines)
    if framework.in_code:
        copied += f"<br>in the agent's code: `{framework.in_code}`"
    return f"| {framework.name} | {versions(framework)} | {copied} |\n"


def gaps() -> str:
    """Write what the packages do not record."""
    lines = [f"- {one.name}: {gap}\n" for one in FRAMEWORKS for gap in one.gaps]
    return "\n## Gaps\n\nWhat these packages do not record:\n\n" + "".join(lines)


def tracing_files() -> str:
    """Write the start files of the frameworks in JavaScript, as the tests use them."""
    return "".join(
        f"\n`tracing.mjs` for {one.name}:\n\n```js\n"
        f"{(PLACE / 'npm' / one.folder / 'tracing.mjs').read_text()}```\n"
        for one in FRAMEWORKS
        if one.javascript
    )


def page() -> str:
    """Write the page."""
    tasks = json.loads((AGENTS / "tasks.json").read_text())
    head = HEAD.format(row=len(tasks["in_a_row"]), once=len(tasks["at_once"]))
    python = "".join(row(framework) for framework in FRAMEWORKS if not framework.javascript)
    javascript = "".join(row(framework) for framework in FRAMEWORKS if framework.javascript)
    tried = head + python + CLIENTS + JAVASCRIPT + javascript + tracing_files()
    return tried + CODING_AGENTS + gaps() + FOOT


if __name__ == "__main__":
    PAGE.write_text(page())
