"""An agent whose variable is misspelt is told so: its texts would leave it without redaction."""

from typing import Any


def test_a_misspelt_variable_is_named_when_the_agent_starts(agent: Any) -> None:
    process = agent.finish("", LIGHTNING_REDCAT="all", LIGHTNING_CLOUD_URL="http://localhost")
    warning = "LIGHTNING_REDCAT is ignored: otel-lightning has no such variable. "
    assert process.stderr == f"{warning}Did you mean LIGHTNING_REDACT?\n"
