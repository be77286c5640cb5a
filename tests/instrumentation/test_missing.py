"""Which instrumentation is missing is said for the libraries that an agent imports."""

from pathlib import Path
from typing import Any

import pytest

INSTRUMENTOR = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

class LlamaInstrumentor(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return []

    def _instrument(self, **kwargs):
        pass

    def _uninstrument(self, **kwargs):
        pass
"""


def library(folder: Path, wants: str) -> None:
    """Make LlamaIndex and an instrumentation of it that wants a package to be installed."""
    for name in ("llama_index", "llama_index/core", "traces_llama"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    (folder / "traces_llama" / "__init__.py").write_text(INSTRUMENTOR)
    info = folder / "traces_llama-1.0.dist-info"
    info.mkdir()
    head = "Metadata-Version: 2.1\nName: traces-llama\nVersion: 1.0\n"
    extra = f"Provides-Extra: instruments\nRequires-Dist: {wants}; extra == 'instruments'\n"
    (info / "METADATA").write_text(head + extra)
    entry = "[opentelemetry_instrumentor]\nllama_index = traces_llama:LlamaInstrumentor\n"
    (info / "entry_points.txt").write_text(entry)


def test_a_library_that_nothing_records_is_named_with_what_to_install(agent: Any) -> None:
    (agent.folder / "cohere.py").write_text("")
    process = agent.finish("import cohere\nimport cohere\n")
    (line,) = process.stderr.splitlines()
    assert line.startswith("cohere is imported, but no instrumentation for it is installed")
    assert line.endswith("pip install opentelemetry-instrumentation-cohere")


@pytest.mark.slow
def test_nothing_is_said_of_libraries_that_are_recorded_or_not_imported(agent: Any) -> None:
    assert agent.finish("import openai, json").stderr == ""


def test_an_instrumentation_that_opentelemetry_refuses_is_named_with_how_to_start_it(
    agent: Any,
) -> None:
    library(agent.folder, "package-that-nobody-has>=0.1")
    (line,) = agent.finish("import llama_index.core\n").stderr.splitlines()
    assert "package-that-nobody-has>=0.1" in line
    assert line.endswith("from traces_llama import LlamaInstrumentor; "
                         "LlamaInstrumentor().instrument()")  # fmt: skip


def test_nothing_is_said_of_an_instrumentation_that_is_started(agent: Any) -> None:
    library(agent.folder, "package-that-nobody-has>=0.1")
    assert agent.finish("import traces_llama, llama_index.core\n").stderr == ""


def test_nothing_is_said_of_an_instrumentation_whose_packages_are_installed(agent: Any) -> None:
    library(agent.folder, "wrapt")
    assert agent.finish("import llama_index.core\n").stderr == ""
