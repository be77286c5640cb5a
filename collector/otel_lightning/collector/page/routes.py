"""From a path to its page: which view writes it, and the frame around it."""

import re
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.process import Answer, Request
from otel_lightning.collector.page.text import FILTERS
from otel_lightning.collector.page.view_request import (
    NotFoundError,
    Source,
    View,
    ViewRequest,
    address,
    parse_query,
    segment,
)
from otel_lightning.collector.page.views import (
    arms,
    data,
    overview,
    rewards,
    rollout,
    rollouts,
    runs,
    sql_console,
    step,
    tasks,
    traces,
)
from otel_lightning.collector.store import StoreError

HTML = "text/html; charset=utf-8"
ROUTES: dict[str, Callable[..., View | Answer]] = {
    "/": overview.show,
    "/rollouts": rollouts.show,
    "/rollouts/<rollout>": rollout.show,
    "/rollouts/<rollout>/steps/<step>": step.show,
    "/tasks": tasks.show_all,
    "/tasks/<task>": tasks.show_task,
    "/states/<state>": tasks.show_state,
    "/data": data.show,
    "/rewards": rewards.show,
    "/arms": arms.show_all,
    "/arms/<key>": arms.show,
    "/runs": runs.show_all,
    "/runs/<run>": runs.show,
    "/traces/<trace>": traces.show,
    "/traces/<trace>/spans/<span>": traces.show_span,
    "/sql": sql_console.show,
    "/sql.csv": sql_console.as_csv,
    "/sql.parquet": sql_console.as_parquet,
}
"""Each page by its path; `<name>` is one part of it, given to the view by this name."""
CONSOLE = "/sql"
NAVIGATION = (
    ("/", "Overview"),
    ("/rollouts", "Rollouts"),
    ("/tasks", "Tasks"),
    ("/data", "Data"),
    ("/rewards", "Rewards"),
    ("/arms", "Arms"),
    ("/runs", "Runs"),
    ("/sql", "SQL"),
)


def respond(request: Request, source: Source) -> Answer:
    """Answer a request for a page.

    Args:
        request: The path below `/ui`, the query, and facts of the receiving process.
        source: Runs the statements of the page.
    """
    started = time.perf_counter()
    ask = ViewRequest(request.path, parse_query(request.query), request.facts, source)
    try:
        view, given = _find(request)
        shown = view(ask, **given)
    except NotFoundError as error:
        shown = View("message.html", "Not found", {"text": str(error)}, HTTPStatus.NOT_FOUND)
    except StoreError as error:
        shown = View(
            "message.html",
            "The store did not answer",
            {"text": f"{error} Narrow the filter, or ask with `lightning-ingest sql`."},
            HTTPStatus.SERVICE_UNAVAILABLE,
        )
    if isinstance(shown, Answer):
        return shown
    values = {
        **shown.values,
        "title": shown.title,
        "ask": ask,
        "navigation": [p for p in NAVIGATION if request.facts["console"] or p[0] != CONSOLE],
        "milliseconds": (time.perf_counter() - started) * 1000,
    }
    text = environment().get_template(shown.template).render(values)
    return Answer(shown.status, HTML, text.encode(errors="replace"))


@cache
def environment() -> Environment:
    """Return the templates: everything is escaped, and an unknown name is an error."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(FILTERS)
    templates.globals.update(address=address, segment=segment, plots=plots)
    return templates


def _find(request: Request) -> tuple[Callable[..., View | Answer], dict[str, Any]]:
    path = request.path
    # Refused here and not only hidden in the navigation.
    if path.startswith(CONSOLE) and not request.facts["console"]:
        raise NotFoundError("This page has no SQL console. Start lightning-ingest with --page-sql.")
    for pattern, view in ROUTES.items():
        # `/rollouts/<rollout>` becomes `/rollouts/(?P<rollout>[^/]+)`. A quoted slash inside a name
        # is `%2F` here, so it does not match as a separator.
        expression = re.sub(r"<(\w+)>", r"(?P<\1>[^/]+)", pattern)
        if match := re.fullmatch(expression, path):
            return view, {name: unquote(text) for name, text in match.groupdict().items()}
    raise NotFoundError(f"There is no page '{path}'.")
