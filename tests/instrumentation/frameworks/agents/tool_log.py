"""The agents' tool: it answers, and logs that it ran for the tests to compare with."""

import json
import os
from pathlib import Path


def sun(city: str) -> str:
    """Tell whether the sun shines in a city."""
    result = f"sun in {city}"
    line = json.dumps({"name": "sun", "arguments": {"city": city}, "result": result})
    with Path(os.environ["TOOL_LOG"]).open("a") as log:
        log.write(line + "\n")
    return result


TASKS = ("Oslo", "Rome", "Lima")
