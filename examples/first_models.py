"""Train the first models again that the examples ship, from which `run.py --quick` starts.

    python examples/first_models.py [EXAMPLE …]

It takes about 45 CPU-seconds for each, on one thread. The same recipe gives the same model on the
same kind of processor; on another, the last digits of the weights differ.
"""

import argparse
import importlib
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from shared.first_model import ABOUT, write_first_model

EXAMPLES = ("text_to_sql", "calculator", "search", "room_booking")


def main() -> None:
    """Train and write the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    options = parser.parse_args()
    unknown = set(options.examples) - set(EXAMPLES)
    if unknown:
        parser.error(f"no example '{min(unknown)}'. Known: {', '.join(EXAMPLES)}")
    for name in options.examples or EXAMPLES:
        example = importlib.import_module(f"{name}.task")
        with tempfile.TemporaryDirectory() as work:
            folder = write_first_model(example, Path(work))
        print(f"{folder}:\n{(folder / ABOUT).read_text('utf-8')}", flush=True)


if __name__ == "__main__":
    main()
