"""The launcher's program imports the standard library only, so that it starts quickly."""

import sys
from pathlib import Path

from support.running import finish

from otel_lightning.learner.rollout_runner.launcher import standalone

HEAVY = {"asyncio", "dataclasses", "inspect", "pathlib", "subprocess", "tempfile", "typing"}
"""Modules of the standard library that would double the time of its start."""


def test_the_launcher_imports_few_modules_and_all_of_the_standard_library() -> None:
    folder = Path(str(standalone.__file__)).parent
    modules = [f"standalone.{file.stem}" for file in folder.glob("[a-z]*.py")]
    # Where posix_spawn cannot begin a session, `subprocess` starts agents.
    modules.remove("standalone.spawn_elsewhere")
    program = (
        f"import sys; sys.path.append({str(folder.parent)!r}); import {', '.join(modules)}; "
        "print(*sys.modules)"
    )
    loaded = finish(sys.executable, "-I", "-S", "-c", program, check=True).stdout.split()
    tops = {name.partition(".")[0] for name in loaded}
    assert tops <= sys.stdlib_module_names | {"__main__", "standalone"}
    assert not tops & HEAVY
