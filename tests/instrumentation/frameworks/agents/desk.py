"""The agents' tasks and tools: each tool answers, and logs that it ran for the tests to compare."""

import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

TASKS = json.loads(Path(__file__).with_name("tasks.json").read_text())
IN_A_ROW, AT_ONCE = TASKS["in_a_row"], TASKS["at_once"]
"""The turns of each task: what its user says, one after the other."""
_lock = threading.Lock()


@contextmanager
def logged(name, city):
    """Log one execution of a tool: what the block puts into `line["result"]`, or its error."""
    line = {"name": name, "arguments": {"city": city}, "result": None, "error": None}
    line["start_unix_ns"] = time.time_ns()
    try:
        yield line
    except Exception as error:
        line["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        line["end_unix_ns"] = time.time_ns()
        with _lock, Path(os.environ["TOOL_LOG"]).open("a") as log:
            log.write(json.dumps(line) + "\n")


def _answer(name, city, answer):
    with logged(name, city) as line:
        if city == "Atlantis":
            raise ValueError(f"no such city: {city}")
        line["result"] = answer
        return answer


def sun(city: str) -> str:
    """Return whether the sun shines in a city."""
    return _answer("sun", city, f"The sun shines in {city}.")


def rain(city: str) -> str:
    """Return whether it rains in a city."""
    return _answer("rain", city, f"It rains in {city} until noon.")


def run(name, arguments):
    """Run a tool as an agent without a framework does: an error becomes its result."""
    try:
        return {"sun": sun, "rain": rain}[name](**json.loads(arguments))
    except ValueError as error:
        return f"Error: {error}"


PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
