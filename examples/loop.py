"""Run an example in `lightning-learn loop`: three rounds, and the curve of what was live.

    python examples/loop.py room_booking [--quick] [--folder .examples]

Room booking learns prompts; the others fine-tune their model, which is served anew for each round.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from shared.environment import MissingPackagesError
from shared.loops import curve, draw, loop_of
from shared.rollouts import StepFailedError
from shared.study import QUICK, Size, prepared, titled

EXAMPLES = ("room_booking", "text_to_sql", "calculator", "search")


def main() -> None:
    """Run the loop of one example, and show its rounds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--quick", action="store_true", help="fewer tasks, less certain")
    parser.add_argument("--folder", type=Path, default=Path(".examples"), help="for all files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    example = importlib.import_module(f"{options.example}.task")
    size = QUICK if options.quick else Size()
    with titled(f"Loop: {example.NAME}"):
        try:
            one = prepared(example, options.folder / f"{options.example}-loop", size, options.seed)
            rounds, said = loop_of(one)
        except (MissingPackagesError, StepFailedError) as error:
            sys.exit(f"loop.py: {error}")
    print("\n".join(["", *curve(rounds), "", said]))
    draw(rounds, example.NAME, one.folder / "curve.svg")
    print(f"The curve is in {one.folder / 'curve.svg'}.")


if __name__ == "__main__":
    main()
