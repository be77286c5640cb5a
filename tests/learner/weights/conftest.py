"""Models small enough to learn in seconds."""

from pathlib import Path
from typing import Any

import pytest
from support.desk_bandit import ACTIONS
from support.once import once
from support.untrained import taught, untrained


@pytest.fixture(scope="session")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 thousand parameters that has learned nothing."""
    return untrained(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="session")
def behavior_model(model: Path, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that wrote the log: it chooses among the four actions at random."""
    return once(tmp_path_factory, "behavior", lambda path: taught(path, model, tokenizer, ACTIONS))
