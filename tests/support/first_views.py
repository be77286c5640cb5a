"""The views that group all calls when they are read, as they were before rows were kept."""

import re
from itertools import chain

from otel_lightning.collector.store import Store
from otel_lightning.collector.store.migrate import migrations

VIEWS = ("rewards", "rollout_ends", "rollouts")
FROM = {"rewards": 4, "rollout_ends": 8, "rollouts": 4}
"""The migration that created each view in the form that is read here."""


def create(store: Store) -> None:
    """Create the former views as temporary ones, with `first_` before their names."""
    files = {migration.version: migration.sql for migration in migrations()}
    for view, version in FROM.items():
        pattern = rf"(?ms)^CREATE (OR REPLACE )?VIEW {view} AS.*?;"
        match = re.search(pattern, files[version])
        assert match
        sql = re.sub(r"\bCREATE (OR REPLACE )?VIEW\b", "CREATE OR REPLACE TEMP VIEW", match[0])
        for name in VIEWS:
            sql = re.sub(rf"\b(VIEW|FROM|JOIN) {name}\b", rf"\1 first_{name}", sql)
        store.execute(sql)


def differences(store: Store) -> list[dict[str, object]]:
    """Return the rows of each view that only its former or only its present form has."""
    create(store)
    differing = chain.from_iterable(
        store.query(
            f"(FROM {name} EXCEPT ALL FROM first_{name})"
            f" UNION ALL BY NAME (FROM first_{name} EXCEPT ALL FROM {name})"
        ).to_pylist()
        for name in VIEWS
    )
    return list(differing)
