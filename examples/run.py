"""Run the examples: before, after and a shuffled control, with intervals, on held-out tasks.

    python examples/run.py text_to_sql [--quick] [--folder .examples]

Exit code 1 if the gain is not above 0, or the control gains as well. With --quick it is 1 only if
a step failed: 60 held-out tasks cannot show every gain.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from shared.environment import MissingPackagesError
from shared.rollouts import StepFailedError
from shared.study import MODELS, PROMPTS, QUICK, Size, gain, study, table, titled

EXAMPLES = ("text_to_sql", "calculator", "search", "room_booking")


def main() -> None:
    """Run the examples that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer tasks and a shipped first model: less certain, under a minute",
    )
    parser.add_argument("--folder", type=Path, default=Path(".examples"), help="for all files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    unknown = set(options.examples) - set(EXAMPLES)
    if unknown:
        parser.error(f"no example '{min(unknown)}'. Known: {', '.join(EXAMPLES)}")
    size = QUICK if options.quick else Size()
    names = options.examples or EXAMPLES
    right = [show(name, options.folder / name, size, options.seed) for name in names]
    sys.exit(0 if all(right) else 1)


def show(name: str, folder: Path, size: Size, seed: int) -> bool:
    """Run one example and print its table; return whether the gain is what it must be."""
    example = importlib.import_module(f"{name}.task")
    with titled(example.NAME):
        try:
            result = study(example, folder, size, seed)
        except (MissingPackagesError, StepFailedError) as error:
            print(f"run.py: {error}", file=sys.stderr)
            return False
    names = PROMPTS if example.LEARNS == "prompts" else MODELS
    print("\n".join(table(result.rewards, names)))
    before, after, control = (
        result.rewards[model, "t1"] for model in ("before", "after", "control")
    )
    gained, lower, _ = gain(after, before)
    gained_by_control, _, _ = gain(control, before)
    is_real = lower > 0 and gained_by_control < gained / 2
    is_quick = not size.trains_first
    if is_real:
        brought = "do not bring it" if gained_by_control <= 0 else "bring less than half of it"
        print(f"The gain is real: its interval excludes 0, and shuffled rewards {brought}.")
    else:
        reason = "shuffled rewards bring half of it or more"
        if lower <= 0:
            reason = "its interval includes 0"
        remark = " These are few tasks: run it without --quick." if is_quick else ""
        print(f"No gain is shown: {reason}.{remark}")
    return is_real or is_quick


if __name__ == "__main__":
    main()
