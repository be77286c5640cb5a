"""Which instrumentation is missing is said for the libraries that an agent imports."""

from typing import Any

import pytest


def test_a_library_that_nothing_records_is_named_with_what_to_install(agent: Any) -> None:
    (agent.folder / "cohere.py").write_text("")
    done = agent.finish("import cohere\nimport cohere\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cohere is imported, but no instrumentation for it is installed")
    assert line.endswith("pip install opentelemetry-instrumentation-cohere")


@pytest.mark.slow
def test_nothing_is_said_of_libraries_that_are_recorded_or_not_imported(agent: Any) -> None:
    assert agent.finish("import openai, json").stderr == ""
