"""Pictures of the page for the documentation: `make screenshots`.

Args: the store to show, by default the one that `make demo` leaves.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.browser import CHROMIUM, chromium, link
from support.otlp_client import column
from support.running import start

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1080, 620
MOST_BYTES = 150_000
LONGEST = """
    SELECT rollout_id FROM rollout_rows
    WHERE final_reward IS NOT NULL
        AND ($built = 0 OR rollout_id IN (SELECT rollout_id FROM transition_rows))
    ORDER BY llm_calls DESC, final_reward DESC, rollout_id LIMIT 1
"""
GATED = """
    SELECT run_id FROM runs WHERE gate IS NOT NULL AND command = 'policy' ORDER BY started LIMIT 1
"""
KEY = "SELECT coalesce(min(key), '-') FROM arms"


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path, nargs="?", default=ROOT / ".demo" / "traces.duckdb")
    store = parser.parse_args().store
    if not store.exists():
        raise SystemExit(f"There is no store at '{store}'. Run `make demo` first.")
    if CHROMIUM is None:
        raise SystemExit("There is no chromium: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    ingester = start(store)
    try:
        with chromium() as browser:
            take_all(browser, ingester)
    finally:
        ingester.stop()


def take_all(browser: Any, ingester: Any) -> None:
    """Take a picture of each page that the documentation shows."""
    store = ingester.store
    built = column(store, "SELECT count(*) FROM transition_rows")[0]
    rollout = column(store, LONGEST.replace("$built", str(built)))[0]
    run, key = column(store, GATED)[0], column(store, KEY)[0]
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    page = context.new_page()
    page.goto(link(ingester))
    for name, path, scheme in (
        ("overview", "/ui", "light"),
        ("rollout", f"/ui/rollouts/{rollout}", "light"),
        ("run", f"/ui/runs/{run}", "light"),
        ("arms", f"/ui/arms/{key}", "dark"),
    ):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"http://{ingester.http}{path}")
        take(page, name)
    report = store.with_name("policy-report.html")  # `make demo` writes it beside its store
    if report.exists():
        page.emulate_media(color_scheme="light")
        page.goto(report.resolve().as_uri())
        take(page, "report")


def take(page: Any, name: str) -> None:
    """Take a picture of what the browser shows."""
    file = PICTURES / f"{name}.png"
    page.screenshot(path=file)
    size = file.stat().st_size
    print(f"{file.relative_to(ROOT)}  {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"{file} is larger than {MOST_BYTES:,} bytes.")


if __name__ == "__main__":
    main()
