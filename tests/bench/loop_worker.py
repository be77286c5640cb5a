"""The trivial agent of `loop.py` as a worker that stays: a JSON line in, a JSON line out."""

import json
import sys
from pathlib import Path

LOG = Path(sys.argv[1])


def note(text: str) -> None:
    """Write one line to the log."""
    with LOG.open("a") as file:
        file.write(text + "\n")


for line in sys.stdin:
    name = json.loads(line)["id"]
    note(f"started {name}")
    note(f"ended {name}")
    print(json.dumps({"output": ""}), flush=True)
