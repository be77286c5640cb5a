"""The tasks of text-to-SQL, and the demonstrations from which its model starts."""

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from shared.recipe import Conversation, Recipe
from text_to_sql import shop
from text_to_sql.database import shown
from text_to_sql.prompts import CHECK, REWRITE, WRITE

NAME = "text-to-SQL (LangGraph)"
RULE = "execution"
LEARNERS = ("write_query", "rewrite_query")
"""Agents whose calls learning may change; the check stays as it is."""
LEARNS = "weights"
HELD_OUT = "30 % of the pairs of a kind of question and a value, such as (count_genre, Rock)"
CHECK_SKILL = 0.75
"""How often the demonstrator's check is right."""
REWRITE_GAIN = 0.15
"""By how much a second try of the demonstrator is more often right than its first."""
DEMONSTRATIONS = 7500


class Question(NamedTuple):
    """One question, of a kind and about a value."""

    kind: shop.Kind
    value: str
    phrasing: int

    @property
    def text(self) -> str:
        """The question as the agent reads it."""
        return self.kind.phrasings[self.phrasing].format(self.value)

    @property
    def query(self) -> str:
        """The right query."""
        return self.kind.right.format(self.value)

    @property
    def is_held_out(self) -> bool:
        """Whether learning never sees a reward of this kind and value, as for 30 % of them."""
        digest = sha256(f"{self.kind.name}/{self.value}".encode()).digest()
        return digest[0] < 256 * 0.3


def questions() -> list[Question]:
    """Return every question, always in the same order."""
    return [
        Question(kind, value, phrasing)
        for kind in shop.KINDS
        for value in kind.values
        for phrasing in range(len(kind.phrasings))
    ]


def prepare(folder: Path) -> None:
    """Write the databases: one that the agent reads, and a second one for the grader."""
    for seed, path in enumerate(databases(folder)):
        shop.build(path, seed)


def databases(folder: Path) -> list[Path]:
    """Return where the two databases are."""
    return [folder / "shop.sqlite", folder / "shop-2.sqlite"]


def tasks(folder: Path) -> list[dict[str, Any]]:
    """Return every task as a line of a task file."""
    first, second = (str(path.resolve()) for path in databases(folder))
    return [
        {
            "id": f"{one.kind.name}-{one.value}-{one.phrasing}",
            "question": one.text,
            "database": first,
            "expected": {"query": one.query, "databases": [first, second]},
            "metadata": {"split": "heldout" if one.is_held_out else "train"},
        }
        for one in questions()
    ]


def recipe(folder: Path) -> Recipe:
    """Return how the first model is trained."""
    schema = shop.SCHEMA
    texts = (WRITE.format(schema=schema), REWRITE.format(schema=schema), CHECK)
    conversations = list(
        demonstrations(DEMONSTRATIONS, str(databases(folder)[0]), random.Random(0))
    )
    return Recipe(conversations, fixed_texts=texts)


def demonstrations(count: int, database: str, rng: random.Random) -> Iterator[Conversation]:
    """Write, check and rewrite queries as the demonstrator does, which is often wrong."""
    pool = questions()
    results: dict[str, str] = {}
    for number in range(count):
        one = rng.choice(pool)
        first = attempt(one, one.kind.skill, rng)
        if number % 3 == 0:
            yield _call(WRITE.format(schema=shop.SCHEMA), one.text, first)
            continue
        if first not in results:
            results[first] = shown(database, first)
        question = f"{one.text}\n{first}\n{results[first]}"
        if number % 3 == 1:
            is_right = (first == one.query) == (rng.random() < CHECK_SKILL)
            yield _call(CHECK, question, "correct" if is_right else "wrong")
        else:
            better = attempt(one, one.kind.skill + REWRITE_GAIN, rng)
            yield _call(REWRITE.format(schema=shop.SCHEMA), question, better)


def attempt(question: Question, skill: float, rng: random.Random) -> str:
    """Write the right query with a probability, else a wrong one."""
    if rng.random() < skill:
        return question.query
    return rng.choice(question.kind.wrong).format(question.value)


def _call(system: str, user: str, assistant: str) -> Conversation:
    roles = ("system", "user", "assistant")
    texts = (system, user, assistant)
    return [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
