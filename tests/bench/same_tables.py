"""Derive recordings with an older version and this one, and compare every derived row.

    python tests/bench/same_tables.py --old main tests/data

Each folder that holds recordings (`*.otlp.pb`, `*.otlp.json`) becomes a store of its own. Prints
the rows that differ; exits with 1 if any do.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from versions import RELEASED, ROOT, checked_out, run

SHOWN = 3
Tables = dict[str, list[str]]


def folders(paths: list[Path]) -> list[Path]:
    """Return the folders below `paths` that hold recordings."""
    files = [file for path in paths for file in path.rglob("*.otlp.*")]
    return sorted({file.parent for file in files})


def differences(old: Tables, new: Tables) -> Iterator[str]:
    """Yield the rows of each table that only one of two versions made."""
    for table, rows in old.items():
        before, after = set(rows), set(new[table])
        for mark, some in (("-", before - after), ("+", after - before)):
            yield from (f"  {mark} {table}: {row}" for row in sorted(some))
        if len(rows) != len(new[table]):
            yield f"  {table}: {len(rows)} rows before, {len(new[table])} now"


def main() -> int:
    """Compare and print; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests" / "data"])
    parser.add_argument("--old", default=RELEASED, help="The git ref to compare with.")
    asked = parser.parse_args()
    found = folders([path.resolve() for path in asked.paths])
    with checked_out(asked.old) as before:
        old, new = (run(version, "recorded", *found) for version in (before, ROOT))
    changed = 0
    for folder in map(str, found):
        if lines := list(differences(old[folder], new[folder])):
            changed += 1
            print(folder, *(line[:2000] for line in lines[: 2 * SHOWN]), sep="\n")
    print(f"{len(found) - changed} of {len(found)} folders give the same rows as {asked.old}.")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
