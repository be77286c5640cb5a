"""The memory and the cores that this process may use: the machine's, or less by a limit."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def memory_bytes(mounted: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Return the bytes of memory that this process may use, with the limits of cgroups.

    Containers and systemd units set such limits.

    Args:
        mounted: Mount point of the cgroups.
        own: The file that lists the cgroups of this process.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(mounted, own)])


def workers() -> int:
    """Return how many worker processes may derive under load.

    One core is left for storing. But from two cores on there are at least two workers: one derives
    while the rows of the other are written.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(cores - 1, 2) if cores and cores > 1 else 1


def _limits(mounted: Path, own: Path) -> Iterator[int]:
    """Yield the limits in bytes of this process's groups and of their parents, which count too."""
    for folder, name in _groups(mounted, own):
        for group in (folder, *folder.parents):
            if mounted not in (group, *group.parents):
                break
            try:
                text = (group / name).read_text().strip()
            except OSError:  # the root group has no limit; in a container the path is not mounted
                continue
            if text.isdecimal():  # "max" means no limit
                yield int(text)


def _groups(mounted: Path, own: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folder of each memory group, and the name of the file with its limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # cgroup version 2 has one hierarchy for all controllers
            yield mounted / path.lstrip("/"), "memory.max"
        elif "memory" in controllers.split(","):
            yield mounted / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
