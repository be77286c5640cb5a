"""A made-up world, its corpus, the questions about it, and the demonstrations to start from."""

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from shared.recipe import Conversation, Recipe

NAME = "multi-hop search (OpenAI Agents SDK)"
RULE = "answered"
LEARNERS: tuple[str, ...] = ()
LEARNS = "weights"
HELD_OUT = "30 % of the pairs of a kind of question and a country"
PROMPT = "You answer questions by searching. Search again if need be. Answer with one name."
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find the passage that fits a query best.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}
WRITTEN = ('<tool_call>{"name": "search", "arguments": {"query": "', '"}}</tool_call>')
"""Texts that all calls have in common; each becomes one token."""
DEMONSTRATIONS = 5000
STOPS = 0.4
"""Share of the demonstrator's errors in which it stops after the first search."""
COUNTRIES = 60
DISTRACTORS = 1700
FACTS = ("capital", "currency", "river", "dish")
FIRST = "Bal Cor Dan El Fen Gar Hol Ist Jor Kal Lor Mar Nor Os Pel Quin Ros Sel Tor Ul".split()  # noqa: SIM905
LAST = "ava bek dor eth fin gund hal ia kor lund mir nost".split()  # noqa: SIM905
THINGS = ("museum", "harbour", "market", "tower", "bridge", "library", "theatre", "garden")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: from one fact of a country to another one."""

    known: str
    wanted: str
    phrasings: tuple[str, str]
    skill: float
    """How often the demonstrator makes both searches as it should."""


KINDS = (
    Kind(
        "capital",
        "currency",
        ("What is the currency where {} is the capital?", "How does one pay around {}?"),
        0.35,
    ),
    Kind(
        "river",
        "capital",
        ("What is the capital where the {} flows?", "Which capital shares a land with the {}?"),
        0.5,
    ),
    Kind(
        "currency",
        "dish",
        ("Which dish do people eat who pay in {}?", "What is eaten where {} is the currency?"),
        0.3,
    ),
    Kind(
        "dish",
        "river",
        ("Which river flows where {} is the dish?", "By what river do people eat {}?"),
        0.25,
    ),
    Kind(
        "capital",
        "dish",
        ("What is the dish of the land of {}?", "What do people in {} eat?"),
        0.4,
    ),
    Kind(
        "river",
        "currency",
        ("What is the currency along the {}?", "How does one pay by the {}?"),
        0.3,
    ),
)


@dataclass(frozen=True, slots=True)
class World:
    """Names of countries and of their facts."""

    countries: tuple[str, ...]
    facts: dict[tuple[str, str], str]
    """By country and kind of fact."""

    def passages(self) -> Iterator[str]:
        """Yield one passage for each fact."""
        for (country, fact), name in self.facts.items():
            yield f"{name} is the {fact} of {country}."


@dataclass(frozen=True, slots=True)
class Question:
    """One question."""

    kind: Kind
    country: str
    phrasing: int
    known: str
    answer: str

    @property
    def text(self) -> str:
        """The question as the agent reads it."""
        return self.kind.phrasings[self.phrasing].format(self.known)

    @property
    def task_id(self) -> str:
        """Its name."""
        return f"{self.kind.known}-{self.kind.wanted}-{self.country}-{self.phrasing}"

    @property
    def is_held_out(self) -> bool:
        """Whether learning never sees a reward for this kind and country."""
        identity = f"{self.kind.known}-{self.kind.wanted}/{self.country}"
        return sha256(identity.encode()).digest()[0] < 256 * 0.3


def world() -> World:
    """Make the world, which is always the same."""
    rng = random.Random(7)
    names = [first + last for first in FIRST for last in LAST]
    names += [f"{name}o" for name in names]
    rng.shuffle(names)
    countries = tuple(names.pop() for _ in range(COUNTRIES))
    return World(countries, {(one, fact): names.pop() for one in countries for fact in FACTS})


def questions() -> list[Question]:
    """Return every question, always in the same order."""
    world_facts = world()
    return [
        Question(
            kind,
            country,
            phrasing,
            world_facts.facts[country, kind.known],
            world_facts.facts[country, kind.wanted],
        )
        for kind in KINDS
        for country in world_facts.countries
        for phrasing in (0, 1)
    ]


def corpus(folder: Path) -> Path:
    """Return where the corpus is."""
    return folder / "atlas.sqlite"


def prepare(folder: Path) -> None:
    """Write the corpus: facts that are asked for, among others that are not."""
    rng = random.Random(8)
    world_facts = world()
    distractors = [
        f"The {rng.choice(THINGS)} of {rng.choice(world_facts.countries)} is "
        f"{rng.randint(20, 900)} years old and has {rng.randint(2, 99)} rooms."
        for _ in range(DISTRACTORS)
    ]
    texts = [*world_facts.passages(), *distractors]
    rng.shuffle(texts)
    corpus(folder).unlink(missing_ok=True)
    database = sqlite3.connect(corpus(folder))
    with database:
        database.execute("CREATE VIRTUAL TABLE passages USING fts5(text)")
        database.executemany("INSERT INTO passages VALUES (?)", [(text,) for text in texts])
    database.close()


def tasks(folder: Path) -> list[dict[str, Any]]:
    """Return every task as a line of a task file."""
    return [
        {
            "id": one.task_id,
            "question": one.text,
            "corpus": str(corpus(folder).resolve()),
            "expected": {
                "answer": one.answer,
                "passages": [
                    f"{one.known} is the {one.kind.known} of {one.country}.",
                    f"{one.answer} is the {one.kind.wanted} of {one.country}.",
                ],
            },
            "metadata": {"split": "heldout" if one.is_held_out else "train"},
        }
        for one in questions()
    ]


def recipe(folder: Path) -> Recipe:
    """Return how the first model is trained."""
    del folder
    conversations = list(demonstrations(DEMONSTRATIONS, random.Random(0)))
    return Recipe(conversations, [TOOL], [PROMPT, *WRITTEN], vocabulary=1200, steps=420, batch=32)


def demonstrations(count: int, rng: random.Random) -> Iterator[Conversation]:
    """Search as the demonstrator does, which often stops early or looks for the wrong thing."""
    world_facts, pool = world(), questions()
    for _ in range(count):
        one = rng.choice(pool)
        talk: Conversation = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": one.text},
        ]
        talk += _searched(f"{one.kind.known} {one.known}", world_facts, one.country, one.kind.known)
        if rng.random() < one.kind.skill:
            fact = one.kind.wanted
        elif rng.random() < STOPS:
            yield [*talk, {"role": "assistant", "content": one.country}]
            continue
        else:
            fact = rng.choice([fact for fact in FACTS if fact != one.kind.wanted])
        talk += _searched(f"{fact} {one.country}", world_facts, one.country, fact)
        yield [*talk, {"role": "assistant", "content": world_facts.facts[one.country, fact]}]


def _searched(query: str, world: World, country: str, fact: str) -> Conversation:
    call = {"function": {"name": "search", "arguments": {"query": query}}}
    passage = f"{world.facts[country, fact]} is the {fact} of {country}."
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": passage}]
