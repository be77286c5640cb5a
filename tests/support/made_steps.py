"""Calls of rollouts as credit methods take them, written out or drawn by hypothesis."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from otel_lightning.learner.credit import Steps


@dataclass(frozen=True)
class Rollout:
    """One rollout: what each call earned itself, and what the whole earned at the end."""

    rewards: list[float]
    outcome: float = 0.0
    task: int = 0
    states: list[int] = field(default_factory=list)
    tools: list[float] = field(default_factory=list)
    truncated: bool = False

    @property
    def earned(self) -> list[float]:
        """Everything that was earned at each call, the outcome included."""
        return [*self.rewards[:-1], self.rewards[-1] + self.outcome]


def together(rollouts: list[Rollout]) -> Steps:
    """Lay rollouts end to end; states and tools that were not given are all different and 0."""
    lengths = [len(r.rewards) for r in rollouts]
    last = np.cumsum(lengths) - 1
    outcomes, truncated = np.zeros(sum(lengths)), np.zeros(sum(lengths), dtype=bool)
    outcomes[last] = [r.outcome for r in rollouts]
    truncated[last] = [r.truncated for r in rollouts]
    unlike = iter(range(1000, 1000 + sum(lengths)))
    return Steps(
        rewards=np.array([x for r in rollouts for x in r.earned], dtype=np.float64),
        outcomes=outcomes,
        tools=np.array([x for r in rollouts for x in r.tools or [0.0] * len(r.rewards)]),
        rollouts=np.repeat(np.arange(len(rollouts)), lengths),
        tasks=np.repeat([r.task for r in rollouts], lengths),
        states=np.array(
            [x for r in rollouts for x in r.states or [next(unlike) for _ in r.rewards]]
        ),
        truncated=truncated,
    )


def apart(values: np.ndarray, rollouts: list[Rollout]) -> list[list[float]]:
    """Cut what was computed for all calls into rollouts again."""
    ends = np.cumsum([len(r.rewards) for r in rollouts])
    return [part.tolist() for part in np.split(values, ends[:-1])]


NUMBERS = st.integers(-16, 16).map(lambda eighths: eighths / 8)


@st.composite
def rollout(draw: st.DrawFn) -> Rollout:
    length = draw(st.integers(1, 5))

    def calls(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=length, max_size=length))

    return Rollout(
        rewards=calls(NUMBERS),
        outcome=draw(NUMBERS),
        task=draw(st.integers(0, 2)),
        states=calls(st.integers(0, 3)),
        tools=calls(st.integers(-2, 2).map(float)),
        truncated=draw(st.booleans()),
    )


ROLLOUTS = st.lists(rollout(), min_size=1, max_size=9)
SHARES = st.integers(0, 8).map(lambda eighths: eighths / 8)
