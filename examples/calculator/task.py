"""The word problems, and the demonstrations from which the calculator's model starts."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from shared.recipe import Conversation, Recipe

NAME = "calculator (AutoGen)"
RULE = "numeric"
LEARNERS: tuple[str, ...] = ()
LEARNS = "weights"
HELD_OUT = "30 % of the problems, by a hash of their kind and numbers"
PROMPT = "You solve word problems. Use the calculator, then say the number."
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Calculate an expression of numbers, + - * / and parentheses.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
WRITTEN = (
    '<tool_call>{"name": "calculator", "arguments": {"expression": "',
    '"}}</tool_call>',
)
"""Texts that all calls have in common; each becomes one token."""
DEMONSTRATIONS = 6000
MOST = 12
"""Numbers in problems are from 2 to this one."""
GUESSES = 0.2
"""Share of the demonstrator's errors in which it answers without the calculator."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem over the numbers a, b and c."""

    name: str
    phrasings: tuple[str, str]
    right: str
    wrong: tuple[str, ...]
    skill: float
    """How often the demonstrator calculates the right expression."""


KINDS = (
    Kind(
        "left",
        (
            "Ann buys {a} boxes of {b} pens and gives {c} pens away. How many pens are left?",
            "There are {a} bags with {b} nuts each. Bob eats {c} nuts. How many nuts remain?",
        ),
        "{a} * {b} - {c}",
        ("{a} + {b} - {c}", "{a} * {b} + {c}"),
        0.45,
    ),
    Kind(
        "more",
        (
            "Ann has {a} coins and gets {b} more on each of {c} days. How many coins has she?",
            "A tank holds {a} litres. Each of {c} pumps adds {b} litres. How much is in it?",
        ),
        "{a} + {b} * {c}",
        ("( {a} + {b} ) * {c}", "{a} + {b} + {c}"),
        0.3,
    ),
    Kind(
        "teams",
        (
            "A team has {a} girls and {b} boys. How many children are in {c} such teams?",
            "A meal is {a} euros and a drink {b} euros. What do {c} guests pay?",
        ),
        "( {a} + {b} ) * {c}",
        ("{a} + {b} * {c}", "{a} * {b} * {c}"),
        0.25,
    ),
    Kind(
        "both",
        (
            "Ann reads {a} pages, Bob {b} pages and Cem {c} pages. How many pages is that?",
            "A dog weighs {a} kilos, a cat {b} and a hare {c}. What do they weigh together?",
        ),
        "{a} + {b} + {c}",
        ("{a} + {b} - {c}", "{a} * {b} + {c}"),
        0.6,
    ),
    Kind(
        "volume",
        (
            "A box is {a} long, {b} wide and {c} high. What is its volume?",
            "On {a} farms there are {b} barns with {c} cows each. How many cows are there?",
        ),
        "{a} * {b} * {c}",
        ("{a} + {b} + {c}", "{a} * {b} + {c}"),
        0.35,
    ),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem."""

    kind: Kind
    numbers: tuple[int, int, int]
    phrasing: int

    def filled(self, text: str) -> str:
        """Put the numbers into a text."""
        return text.format(**dict(zip("abc", self.numbers, strict=True)))

    @property
    def text(self) -> str:
        """The problem as the agent reads it."""
        return self.filled(self.kind.phrasings[self.phrasing])

    @property
    def task_id(self) -> str:
        """Its name."""
        return f"{self.kind.name}-{'-'.join(map(str, self.numbers))}-{self.phrasing}"

    @property
    def is_held_out(self) -> bool:
        """Whether learning never sees its reward."""
        identity = f"{self.kind.name}/{self.numbers}"
        return sha256(identity.encode()).digest()[0] < 256 * 0.3


def value(expression: str) -> int:
    """Calculate an expression that this file made."""
    return int(eval(expression, {"__builtins__": {}}))  # noqa: S307 - our own text, no input


def draw(rng: random.Random) -> Problem:
    """Draw a problem whose wrong answers differ from the right one."""
    while True:
        numbers = tuple(rng.randint(2, MOST) for _ in "abc")
        problem = Problem(rng.choice(KINDS), numbers, rng.randrange(2))  # type: ignore[arg-type]
        right, *wrong = (
            value(problem.filled(one)) for one in (problem.kind.right, *problem.kind.wrong)
        )
        if right not in wrong and right > 0:
            return problem


def prepare(folder: Path) -> None:
    """Do nothing: the problems need no files."""
    del folder


def tasks(folder: Path) -> list[dict[str, Any]]:
    """Return problems as lines of a task file."""
    del folder
    rng = random.Random(1)
    problems = {one.task_id: one for one in (draw(rng) for _ in range(600))}
    return [
        {
            "id": name,
            "question": one.text,
            "expected": value(one.filled(one.kind.right)),
            "metadata": {"split": "heldout" if one.is_held_out else "train"},
        }
        for name, one in problems.items()
    ]


def recipe(folder: Path) -> Recipe:
    """Return how the first model is trained."""
    del folder
    conversations = list(demonstrations(DEMONSTRATIONS, random.Random(0)))
    return Recipe(conversations, [TOOL], [PROMPT, *WRITTEN], vocabulary=1100, steps=420, batch=32)


def demonstrations(count: int, rng: random.Random) -> Iterator[Conversation]:
    """Solve problems as the demonstrator does: often by the wrong expression, or by guessing."""
    for _ in range(count):
        problem = draw(rng)
        question = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": problem.text},
        ]
        is_right = rng.random() < problem.kind.skill
        if not is_right and rng.random() < GUESSES:
            yield [*question, {"role": "assistant", "content": str(rng.randint(2, 200))}]
            continue
        chosen = problem.kind.right if is_right else rng.choice(problem.kind.wrong)
        expression = problem.filled(chosen)
        call = {"function": {"name": "calculator", "arguments": {"expression": expression}}}
        result = str(value(expression))
        yield [
            *question,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": json.dumps(result)[1:-1]},
            {"role": "assistant", "content": result},
        ]
