"""No test waits for a process, a thread, a socket or a queue without a limit, or with a short one.

One wait without a limit is enough to make the whole run stand still: nothing fails, and nothing
says which test it is. A short limit fails on a busy machine, though nothing is wrong.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
RUNNING = TESTS / "support" / "running.py"
LEFT_OUT = ("data", "bench", "agents", "clients")

WAITS = {"wait", "join", "communicate", "result"}
"""Methods that wait without a limit when they are called without an argument."""
CONNECTIONS = {"urlopen", "HTTPConnection", "HTTPSConnection", "create_connection"}
"""Calls that wait for the other side without a limit unless they get a `timeout`."""
OWN_LIMITS = {"Job", "ReaderLimits", "Spec", "shell"}
"""Calls whose limit is that of what is tested."""
WITH_SECONDS = {"eventually", "finish", "join"}
"""Functions of support.running whose limit is named `seconds`."""
POLL_S, LEAST_S = 2, 60
"""A shorter wait looks at something again and again; a limit on a failure is at least so long."""
PROGRAMS = {"Popen", "call", "check_call", "check_output", "run"}
LOOKED_AT = WAITS | CONNECTIONS | PROGRAMS | WITH_SECONDS | {"Thread", "fork"}


def name_of(call: ast.Call) -> tuple[str, str]:
    """Return what a function is called on, where it has a plain name, and its own name."""
    if isinstance(call.func, ast.Attribute):
        on = call.func.value
        return on.id if isinstance(on, ast.Name) else "", call.func.attr
    return "", call.func.id if isinstance(call.func, ast.Name) else ""


def is_short(call: ast.Call, name: str) -> bool:
    """Whether the limit of a wait is a number that a busy machine exceeds."""
    names = ("timeout", "seconds") if name in WITH_SECONDS else ("timeout",)
    limits = [keyword.value for keyword in call.keywords if keyword.arg in names]
    limits += call.args[:1] if name in WAITS else call.args[1:2] if name == "eventually" else []
    numbers = [limit.value for limit in limits if isinstance(limit, ast.Constant)]
    return any(isinstance(one, int | float) and POLL_S <= one < LEAST_S for one in numbers)


def fault(call: ast.Call) -> str | None:
    """Say what may wait forever, if anything does."""
    on, name = name_of(call)
    named = {keyword.arg for keyword in call.keywords}
    if name not in LOOKED_AT and "timeout" not in named:
        return None
    has_timeout = "timeout" in named or (name == "create_connection" and len(call.args) > 1)
    rules = {
        f"give .{name}() a limit of time": (
            name in WAITS and on != "refresher" and not call.args and not named
        ),
        f"give {name}() a timeout": name in CONNECTIONS and not has_timeout,
        f"use finish() or background() of support.running instead of {name}()": (
            on == "subprocess" and name in PROGRAMS and not has_timeout
        ),
        f"give {name}() a limit of {LEAST_S} seconds at least, such as LIMIT_S": (
            name not in OWN_LIMITS and is_short(call, name)
        ),
        "make the thread a daemon: another one keeps the process from ending": (
            name == "Thread" and "daemon" not in named
        ),
        "start another Python: a fork copies the locks of all threads, and not the threads": (
            (on, name) == ("os", "fork")
        ),
    }
    return next((told for told, holds in rules.items() if holds), None)


def faults(text: str) -> Iterator[str]:
    """Find the waits without a limit in a program."""
    tree = ast.parse(text)
    of_asyncio = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in of_asyncio and (told := fault(node)):
            yield f"{node.lineno}: {told}"


def test_every_wait_in_the_tests_has_a_limit_of_time() -> None:
    files = [
        file.relative_to(TESTS)
        for file in sorted(TESTS.rglob("*.py"))
        if file != RUNNING and not set(LEFT_OUT) & set(file.relative_to(TESTS).parts)
    ]
    found = [f"{file}:{told}" for file in files for told in faults((TESTS / file).read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("process.wait()", 1),
        ("process.wait(60)", 0),
        ("', '.join(words)", 0),
        ("with subprocess.Popen(words) as process: pass", 1),
        ("async def f(): await event.wait()", 0),
        ("urlopen(url)", 1),
        ("urlopen(url, timeout=LIMIT_S)", 0),
        ("Thread(target=f)", 1),
        ("process.wait(10)", 1),
        ("over.wait(0.01)", 0),
        ("urlopen(url, timeout=9)", 1),
        ("eventually(is_there, 20)", 1),
        ("eventually(is_there, seconds=60)", 0),
        ("Job(file, command, timeout=5)", 0),
        ("os.fork()", 1),
    ],
)
def test_waits_without_a_limit_are_found(text: str, number: int) -> None:
    assert len(list(faults(text))) == number
