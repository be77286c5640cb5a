"""What asking costs over 10 million spans: wall milliseconds, the best of five.

Asked in the process that opened the file, and of an idle ingester by a client of its SQL server.
The spans are made by one INSERT … SELECT for every 122,880 of them, through the store that the
loader writes with: traces of 12 spans with random ids, a millisecond apart, five in twelve a model
call of one of 20 models with ten attributes. Texts are 200 bytes and not 2,000, so that making them
takes minutes: no question below reads them. Run it with `make bench-ask`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from otel_lightning.collector.store import Store, attribute_columns, open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.running import start

ROWS = 122_880
MAKE = """
    INSERT INTO spans BY NAME
    WITH numbers AS (
        SELECT range AS n, range // 12 AS t, range % 12 AS k FROM range({first}, {last})
    ),
    made AS (
        SELECT n,
            md5('trace' || t) AS trace_id, substr(md5('span' || n), 1, 16) AS span_id,
            'span' AS name, make_timestamp_ns(1800000000000000000 + n * 1000000) AS start_time,
            start_time AS end_time, start_time AS received_at,
            if(k BETWEEN 1 AND 5, 'model-' || (hash(n) % 20), NULL) AS model
        FROM numbers
    )
    SELECT * EXCLUDE (n, model), model AS "gen_ai.request.model",
        if(model IS NULL, NULL, 'chat') AS "gen_ai.operation.name",
        if(model IS NULL, MAP {{'note': 'none'}}, MAP {{
            'gen_ai.request.model': model, 'gen_ai.operation.name': 'chat', 'rare': 'r' || n,
            'gen_ai.input.messages': repeat(md5('text' || n), 6), 'a': 'x', 'b': 'x', 'c': 'x',
            'd': 'x', 'e': 'x', 'f': 'x'}}) AS attributes
    FROM made
"""
MODEL = "attributes['gen_ai.request.model']"
QUESTIONS = {
    "filter by model": f"""
        SELECT count(*) AS n, max(start_time) AS last FROM spans WHERE {MODEL} = 'model-7'""",
    "one trace by id": """
        SELECT name, start_time FROM spans WHERE trace_id = md5('trace' || {trace})""",
    "group by model and day": f"""
        SELECT {MODEL} AS m, start_time::DATE AS day, count(*) AS n FROM spans GROUP BY m, day""",
}


def main() -> None:
    """Make the spans, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=10_000_000)
    spans = parser.parse_args().spans
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        make(path, spans)
        questions = {name: sql.format(trace=spans // 24) for name, sql in QUESTIONS.items()}
        with open_store(path, read_only=True) as store:
            direct = [best(store, sql) for sql in questions.values()]
        ingester = start(path)
        with open_store(path, read_only=True) as store:
            served = [best(store, sql) for sql in questions.values()]
        ingester.stop()
        print(f"{spans:,} spans, {len(attribute_columns.KEYS)} promoted keys\n")
        print("| question | in process, ms | of an ingester, ms |\n|---|---|---|")
        for name, *times in zip(questions, direct, served, strict=True):
            print(f"| {name} | {times[0]:.0f} | {times[1]:.0f} |")


def make(path: Path, spans: int) -> None:
    """Fill a new store."""
    with open_store(path) as store:
        for first in range(0, spans, ROWS):
            store.execute(MAKE.format(first=first, last=min(first + ROWS, spans)))
        store.checkpoint()


def best(store: Store, sql: str) -> float:
    """Ask five times; return the least milliseconds."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        store.query(sql)
        times.append(time.perf_counter() - begun)
    return min(times) * 1000


if __name__ == "__main__":
    main()
