"""Keep the house small: non-blank lines a source root. Raising a budget is a decision note."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGET = {"instrumentation": 1_000, "collector": 9_300, "learner": 6_000}
LONGEST_MODULE = 400


def lines(path: Path) -> int:
    """Count the lines that hold something."""
    return sum(1 for line in path.read_text().splitlines() if line.strip())


def main() -> int:
    """Print each root's size beside its budget; 1 if one is over."""
    over = False
    for root, budget in BUDGET.items():
        sizes = {p: lines(p) for p in (ROOT / root).rglob("*") if p.suffix in (".py", ".sql")}
        total = sum(sizes.values())
        long = [f"{p.relative_to(ROOT)} ({n})" for p, n in sizes.items() if n > LONGEST_MODULE]
        over = over or total > budget or bool(long)
        print(f"{root:>16} {total:>6,} of {budget:>6,} lines")
        for module in long:
            print(f"  over {LONGEST_MODULE}: {module}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
