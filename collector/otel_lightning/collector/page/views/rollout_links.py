"""Links to the pages of rollouts, for the lists of rollouts on several pages."""

from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.page.view_request import address, segment


def linked(
    rows: list[dict[str, Any]], parameters: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Add the address of its page to each rollout.

    Args:
        rows: Rows with `rollout_id`, `start_ns` and, if the filter sorts them, `sort_key`.
        parameters: Parameters of the filter, so that "next" and "previous" stay within it.
    """
    return [{**row, "href": link(row, parameters)} for row in rows]


def link(row: Mapping[str, Any], parameters: Mapping[str, str] | None = None) -> str:
    """Return the address of a rollout's page.

    It has the start of the rollout: DuckDB skips to a time, but not to a random id.
    """
    query = dict(parameters or {})
    if query.get("sort", "newest") != "newest" and row.get("sort_key") is not None:
        query["key"] = repr(row["sort_key"])
    return address(f"/rollouts/{segment(row['rollout_id'])}", at=row["start_ns"], **query)
