"""The rooms, and which of them is the best for a meeting."""

from typing import NamedTuple


class Room(NamedTuple):
    """A meeting room."""

    name: str
    seats: int
    has: frozenset[str]


def _room(name: str, seats: int, *has: str) -> Room:
    return Room(name, seats, frozenset(has))


ROOMS = tuple(
    _room(f"{'-'.join(has) or 'plain'}-{seats}", seats, *has)
    for seats in (4, 8, 12)
    for has in (
        (),
        ("ramp",),
        ("screen",),
        ("quiet",),
        ("ramp", "screen"),
        ("ramp", "quiet"),
        ("screen", "quiet"),
        ("ramp", "screen", "quiet"),
    )
)


def best_room(seats: int, needs: set[str]) -> str:
    """Return the room with all that is needed, the fewest seats and the least else."""
    fitting = [room for room in ROOMS if room.seats >= seats and needs <= room.has]
    best = min(fitting, key=lambda room: (room.seats, len(room.has)), default=None)
    return best.name if best else "none"
