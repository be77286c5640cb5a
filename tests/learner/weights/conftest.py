"""Models small enough to learn in seconds."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import ACTIONS, log, run
from support.once import once
from support.untrained import taught, untrained

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Traces


@pytest.fixture(scope="session")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 thousand parameters that has learned nothing."""
    return untrained(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="session")
def behavior_model(model: Path, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that wrote the log: it chooses among the four actions at random."""
    return once(tmp_path_factory, "behavior", lambda path: taught(path, model, tokenizer, ACTIONS))


@pytest.fixture(scope="module")
def desk(new_traces: "Callable[[], Traces]", tokenizer: Any) -> "Callable[[int], Traces]":
    """Stores of rollouts of the desk by the attempts at a task, with their transitions."""

    @cache
    def made(attempts: int) -> "Traces":
        traces = new_traces()
        log(traces, tokenizer, attempts)
        assert run("transitions", "--store", traces.store(), "--credit", "group").exit_code == 0
        return traces

    return made


@pytest.fixture
def logged(traces: "Traces", desk: "Callable[[int], Traces]") -> "Traces":
    """A store of rollouts of the desk, with their transitions."""
    traces.begin_with(desk(4))
    return traces
