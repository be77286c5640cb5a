"""A small process that starts agents, ends them, and writes down how each ended.

Begin in `main.py`. It imports the standard library only, so that starting an agent copies nothing
of the runner, which may have DuckDB and polars loaded. It runs without site-packages, as a package
of its own with the name `standalone`: therefore its files import each other by relative imports.

It imports little, because each run waits for its start: without `dataclasses`, `typing` and
`subprocess` it starts in half of the time. It uses `os` instead of the slower `pathlib`, and
`posix_spawn` instead of `subprocess`, which took a fifth of the CPU time for each agent.
"""
