"""Log a warning for each model library that the agent imports without an instrumentation."""

import logging
from functools import partial
from importlib import metadata
from typing import Final, NamedTuple

import wrapt

from otel_lightning.instrumentation.guard import never_raise

_logger = logging.getLogger(__name__)


class Remedy(NamedTuple):
    """The instrumentation of a library."""

    known: tuple[str, ...]
    """Names under which instrumentors of that library are registered."""
    line: str
    """The command that installs one."""


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
}
"""Model clients that do not use the openai client, by the module that an agent imports."""


def say_what_is_missing() -> None:
    """On the import of one of these libraries, warn if no instrumentation for it is installed."""
    for module, remedy in REMEDIES.items():
        wrapt.register_post_import_hook(partial(_check, module, remedy), module)


@never_raise
def _check(module: str, remedy: Remedy, _imported: object) -> None:
    # Installed is enough: the launcher starts every instrumentor of this group.
    installed = {entry.name for entry in metadata.entry_points(group="opentelemetry_instrumentor")}
    if installed.isdisjoint(remedy.known):
        _logger.warning(
            "%s is imported, but no instrumentation for it is installed, so its model calls are "
            "not recorded. Install one with: %s",
            module,
            remedy.line,
        )
