"""Requests for rooms, and the demonstrations from which the booking model starts.

The demonstrator asks for what a line of its system prompt says, right or wrong, and mostly forgets
what no line says: so it is the prompt that decides, and the better prompt wins.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from room_booking.rooms import best_room
from room_booking.writer import LINE
from shared.recipe import Conversation, Recipe

NAME = "room booking (bare OpenAI client)"
RULE = "booked"
LEARNERS: tuple[str, ...] = ()
LEARNS = "prompts"
FLAG = "booking-prompt"
HELD_OUT = "30 % of the requests, by a hash of seats, needs and names"
PROMPT = "You book meeting rooms."
SAYINGS = {
    "ramp": "uses a wheelchair",
    "screen": "shows slides",
    "quiet": "joins by a call",
}
"""What somebody does, by what it needs."""
LINES = {
    (need, other): LINE.format(need=need, saying=saying)
    for need in SAYINGS
    for other, saying in SAYINGS.items()
}
"""The lines of a system prompt, right and wrong: ask for the first need because of the second."""
USELESS = ("Be polite.", "Answer quickly.", "Think of the weather.", "Save the company money.")
"""Lines that change nothing."""
PEOPLE = ("Ann", "Bob", "Cem", "Dora", "Eve", "Finn")
SEATS = range(2, 13)
OBEYS, KNOWS = 0.95, 0.35
"""How often the demonstrator heeds a need with, and without, a line about it."""
LINED = 0.6
"""How often a prompt has a line about a saying; one in three of these lines is wrong."""
WRITTEN = ('<tool_call>{"name": "book", "arguments": {"seats": ', ', "needs": "', '"}}</tool_call>')
"""Texts that all calls have in common; each becomes one token."""
DEMONSTRATIONS = 7000
TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book the smallest free room that has what is needed.",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a room: seats, and things that the room needs to have."""

    seats: int
    needs: tuple[str, ...]
    people: tuple[str, ...]

    @property
    def text(self) -> str:
        """The request as the agent reads it."""
        wishes = [
            f"{one} {SAYINGS[need]}" for need, one in zip(self.needs, self.people, strict=True)
        ]
        return "; ".join([f"A room for {self.seats} people", *wishes]) + "."

    @property
    def is_held_out(self) -> bool:
        """Whether no author of prompts and no learner sees its reward."""
        return sha256(self.text.encode()).digest()[0] < 256 * 0.3


def requests() -> list[Request]:
    """Return requests, always in the same order."""
    rng = random.Random(3)
    kinds = [needs for size in range(4) for needs in itertools.combinations(tuple(SAYINGS), size)]
    requests = [
        Request(seats, needs, tuple(rng.sample(PEOPLE, len(needs))))
        for seats in SEATS
        for needs in kinds
        for _ in range(4 if needs else 1)
    ]
    return list(dict.fromkeys(requests))


def prepare(folder: Path) -> None:
    """Do nothing: the requests need no files."""
    del folder


def tasks(folder: Path) -> list[dict[str, Any]]:
    """Return every task as a line of a task file."""
    del folder
    return [
        {
            "id": f"room-{number}",
            "request": one.text,
            "expected": {
                "room": best_room(one.seats, set(one.needs)),
                "seats": one.seats,
                "needs": list(one.needs),
            },
            "metadata": {"split": "heldout" if one.is_held_out else "train"},
        }
        for number, one in enumerate(requests())
    ]


def system_prompt(lines: Sequence[str]) -> str:
    """Write a system prompt with these lines."""
    return "\n".join([PROMPT, *lines])


def recipe(folder: Path) -> Recipe:
    """Return how the first model is trained."""
    del folder
    conversations = list(demonstrations(DEMONSTRATIONS, random.Random(0)))
    fixed = (PROMPT, *LINES.values(), *USELESS, *WRITTEN)
    return Recipe(
        conversations, tools=[TOOL], fixed_texts=fixed, vocabulary=500, steps=330, batch=32
    )


def demonstrations(count: int, rng: random.Random) -> Iterator[Conversation]:
    """Book as the demonstrator does: by the lines of the prompt, forgetting the rest."""
    pool = requests()
    for _ in range(count):
        one = rng.choice(pool)
        about = {
            other: rng.choice([other, rng.choice(list(SAYINGS))])
            for other in SAYINGS
            if rng.random() < LINED
        }
        lines = [LINES[need, other] for other, need in about.items()]
        lines += rng.sample(USELESS, rng.randint(0, 2))
        rng.shuffle(lines)
        needs_booked = {
            about.get(need, need)
            for need in one.needs
            if rng.random() < (OBEYS if need in about else KNOWS)
        }
        yield [
            {"role": "system", "content": system_prompt(lines)},
            {"role": "user", "content": one.text},
            {"role": "assistant", "tool_calls": [{"function": _booking(one.seats, needs_booked)}]},
        ]


def _booking(seats: int, needs_booked: set[str]) -> dict[str, Any]:
    needs = " ".join(need for need in SAYINGS if need in needs_booked)
    return {"name": "book", "arguments": {"seats": seats, "needs": needs}}
