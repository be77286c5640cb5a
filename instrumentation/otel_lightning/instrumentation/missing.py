"""Log a warning for each model library that the agent imports and nothing instruments."""

import logging
import sys
from functools import partial
from importlib import metadata
from typing import Final, NamedTuple

import wrapt
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts

from otel_lightning.instrumentation.guard import never_raise

_logger = logging.getLogger(__name__)


class Remedy(NamedTuple):
    """The instrumentation of a library."""

    instrumentors: tuple[str, ...]
    """Names under which instrumentors of that library are registered."""
    line: str | None
    """The command that installs one; None for a library that is recorded in part without one."""


REMEDIES: Final = {
    "anthropic": Remedy(("anthropic",), "pip install opentelemetry-instrumentation-anthropic"),
    "google.genai": Remedy(
        ("google_genai", "google-genai", "google_generativeai"),
        "pip install opentelemetry-instrumentation-google-generativeai",
    ),
    "mistralai": Remedy(("mistralai",), "pip install opentelemetry-instrumentation-mistralai"),
    "cohere": Remedy(("cohere",), "pip install opentelemetry-instrumentation-cohere"),
    "ollama": Remedy(("ollama",), "pip install opentelemetry-instrumentation-ollama"),
    "groq": Remedy(("groq",), "pip install opentelemetry-instrumentation-groq"),
    # OpenAI's client records its model calls; the instrumentation adds retrievers and rerankers.
    "llama_index.core": Remedy(("llama_index",), None),
}
"""Libraries that the openai client's instrumentation does not record, or not all of them, by the
module that an agent imports."""


def say_what_is_missing() -> None:
    """On the import of one of these libraries, warn if no instrumentation of it was started."""
    for module, remedy in REMEDIES.items():
        wrapt.register_post_import_hook(partial(_check, module, remedy), module)


@never_raise
def _check(module: str, remedy: Remedy, _imported: object) -> None:
    group = metadata.entry_points(group="opentelemetry_instrumentor")
    installed = [entry for entry in group if entry.name in remedy.instrumentors]
    # The launcher starts every instrumentor of this group whose packages are installed.
    refused = [(entry, reason) for entry in installed if (reason := _refusal(entry))]
    if installed and len(refused) == len(installed):
        entry, reason = refused[0]
        _logger.warning(
            "%s is imported, but OpenTelemetry did not start its instrumentation. The reason: %s "
            "Start it in the agent's code: from %s import %s; %s().instrument()",
            module, reason, entry.module, entry.attr, entry.attr,
        )  # fmt: skip
    elif not installed and remedy.line:
        _logger.warning(
            "%s is imported, but no instrumentation for it is installed, so its model calls are "
            "not recorded. Install one with: %s",
            module,
            remedy.line,
        )


def _refusal(entry: metadata.EntryPoint) -> str | None:
    """Return why the launcher does not start an instrumentor; None if it does, or the agent may."""
    if entry.dist is None or entry.module in sys.modules:
        return None
    # All packages that the distribution names must be installed, also those that nobody needs.
    conflict = get_dist_dependency_conflicts(entry.dist)
    return str(conflict) if conflict else None
