"""Limits that keep code readable: lines of a function and of a module. Totals are printed only."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("instrumentation", "collector", "learner")
LONGEST_FUNCTION = 60
LONGEST_MODULE = 400


def lines(path: Path) -> int:
    """Count the lines that are not blank."""
    return sum(1 for line in path.read_text().splitlines() if line.strip())


def long_functions(path: Path) -> Iterator[str]:
    """Name each function whose body, without its docstring, has too many lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
        length = (body[-1].end_lineno or 0) - body[0].lineno + 1
        if length > LONGEST_FUNCTION:
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({length} lines)"


def main() -> int:
    """Print each source root's size; 1 if a function or a module is too long."""
    too_long: list[str] = []
    for root in SOURCES:
        sizes = {p: lines(p) for p in (ROOT / root).rglob("*") if p.suffix in (".py", ".sql")}
        print(f"{root:>16} {sum(sizes.values()):>6,} lines in {len(sizes)} files")
        for path, size in sizes.items():
            if size > LONGEST_MODULE:
                too_long.append(f"{path.relative_to(ROOT)} ({size} lines)")
            if path.suffix == ".py":
                too_long.extend(long_functions(path))
    for place in too_long:
        print(f"  too long: {place}")
    return int(bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
