"""The page that says which package traces which framework, from the tests that run each.

`python tests/support/frameworks_page.py` writes it.
"""

from pathlib import Path

from support.frameworks import FRAMEWORKS, Framework

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "which-package.md"
HEAD = """# Which package for which framework

Each row is run by `make test-frameworks`: an unchanged agent works on three tasks with a tool, and
afterwards `llm_calls`, `tool_calls` and `rollouts` equal what the model server and the tool logged.
Messages, tools and token counts are recorded unless a
[content switch](trace-your-agent.md#choose-what-is-recorded) keeps content out.

Copy the line for your framework, then run the agent as ever: `python agent.py`.

| framework | tried with | lines to copy |
|---|---|---|
"""
FOOT = """
Port 4318 takes OTLP over HTTP and port 4317 takes gRPC. With another framework that uses the
`openai` client, the same lines work. For a client of another provider, the log names the package
to install, as in `pip install opentelemetry-instrumentation-anthropic`; agents in JavaScript send
OTLP by themselves and need no package of ours ([what each
dialect tells](../reference/dialects.md)). Neither is run by these tests.
"""


def row(framework: Framework) -> str:
    """Write the row of one framework."""
    packages = " ".join(("otel-lightning", *framework.instrumentation))
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", **framework.variables}
    exports = " ".join(f"{name}={value}" for name, value in variables.items())
    tried = ", ".join(f"`{package}`" for package in framework.packages)
    return f"| {framework.name} | {tried} | `pip install {packages}`<br>`export {exports}` |\n"


def page() -> str:
    """Write the page."""
    return HEAD + "".join(row(framework) for framework in FRAMEWORKS) + FOOT


if __name__ == "__main__":
    PAGE.write_text(page())
