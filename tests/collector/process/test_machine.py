"""Memory is what the cgroup allows, not what the host has; workers are counted by cores."""

import os
import sys
from pathlib import Path

import pytest
from support.running import finish

from otel_lightning.collector.process.machine import memory_bytes

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/system.slice/lightning.service\n",
         {"system.slice/lightning.service/memory.max": "300000000"}, 300_000_000),
        ("0::/a/b\n", {"a/memory.max": "200000000", "a/b/memory.max": "max"}, 200_000_000),
        ("0::/\n", {"memory.max": "100000000"}, 100_000_000),  # in a container
        ("0::/not/mounted\n", {"memory.max": "100000000"}, 100_000_000),
        ("5:cpu:/x\n4:memory:/docker/1\n",
         {"memory/docker/1/memory.limit_in_bytes": "400000000"}, 400_000_000),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, PHYSICAL),
        ("0::/\n", {"memory.max": "max"}, PHYSICAL),
        ("0::/\n", {}, PHYSICAL),
    ],
)  # fmt: skip
def test_the_smallest_limit_counts(
    own: str, limits: dict[str, str], expected: int, tmp_path: Path
) -> None:
    mounted = tmp_path / "cgroup"
    for name, text in limits.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text + "\n")
    file = tmp_path / "own"
    file.write_text(own)
    assert memory_bytes(mounted, file) == expected


def test_where_there_are_no_cgroups_the_machine_counts(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path, tmp_path / "missing") == PHYSICAL


AFFINITY = hasattr(os, "sched_setaffinity")


@pytest.mark.skipif(not AFFINITY, reason="this system cannot take cores from a process")
def test_one_core_has_no_worker_process_and_two_have_two() -> None:
    told = (
        "import os\n"
        "from otel_lightning.collector.process.machine import workers\n"
        "cores = sorted(os.sched_getaffinity(0))\n"
        "for some in (1, 2, len(cores)):\n"
        "    os.sched_setaffinity(0, cores[:some])\n"
        "    print(len(cores[:some]), workers())\n"
    )
    shown = finish(sys.executable, "-c", told, check=True)
    for cores, workers in (map(int, line.split()) for line in shown.stdout.splitlines()):
        assert workers == {1: 1, 2: 2}.get(cores, cores - 1)
