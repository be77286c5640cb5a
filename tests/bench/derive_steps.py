"""Count what deriving executes: bytecode instructions and calls of Python functions.

    python tests/bench/derive_steps.py --old main

CPU time of a shared machine varies by a tenth; these counts are the same in each run. They leave
out what C functions do, so compare versions, and measure CPU time too. Prints a table of workloads
of an older version and this one, and the functions of this one that execute most.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parent))

from derive_once import derive_all, found, stored_steps, warm_up
from versions import RELEASED, ROOT, checked_out, run
from workloads import DIALECTS, GROWING


class Steps:
    """Bytecode instructions and calls, by function, while it is entered."""

    def __init__(self) -> None:
        """Begin with none."""
        self.instructions, self.calls = Counter[str](), Counter[str]()

    def __enter__(self) -> None:
        """Count from here on."""
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        sys.settrace(None)

    def _called(self, frame: FrameType, _: str, __: object) -> Any:
        name = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
        self.calls[name] += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def count(_: FrameType, event: str, __: object) -> Any:
            self.instructions[name] += event == "opcode"
            return count

        return count


def once(case: str, spans: int) -> dict[str, Any]:
    """Store a workload and derive it, in its steps if it grows; return the counts a span."""
    steps = Steps()
    with TemporaryDirectory() as folder:
        warm_up(Path(folder))
        with found("open_store")(Path(folder) / "t.duckdb") as store:
            store.threads = 1
            for _ in stored_steps(store, case, spans, Path(folder)):
                if case == GROWING:
                    with steps:
                        derive_all(store)
            with steps:
                derive_all(store)
    return {
        "instructions": steps.instructions.total() / spans,
        "calls": steps.calls.total() / spans,
        "most": [(name, number / spans) for name, number in steps.instructions.most_common(20)],
    }


def main() -> None:
    """Print the table, and the functions that execute most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=RELEASED, help="The git ref to compare with.")
    parser.add_argument("--spans", type=int, default=2_400, help="Spans of each workload.")
    asked = parser.parse_args()
    print(f"{asked.spans:,} spans; bytecode instructions and calls of Python functions a span\n")
    print(f"| work | {asked.old} | now | times | calls, {asked.old} | now |")
    print("|---|---|---|---|---|---|")
    most = []
    script = Path(__file__)
    with checked_out(asked.old) as before:
        for case in (*DIALECTS, GROWING):
            old, new = (
                run(version, "once", case, asked.spans, script=script) for version in (before, ROOT)
            )
            ratio = new["instructions"] / old["instructions"]
            cells = f"{old['instructions']:.0f} | {new['instructions']:.0f} | {ratio:.2f}"
            print(f"| {case} | {cells} | {old['calls']:.1f} | {new['calls']:.1f} |", flush=True)
            most += ["", case, *(f"{number:9.1f} {name}" for name, number in new["most"])]
    print(*most, sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["once"]:
        print(json.dumps(once(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
