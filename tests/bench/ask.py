"""What asking costs over 10 million spans: CPU and wall milliseconds, the best of five.

Asked in the process that opened the file, and of an idle ingester by a client of its SQL server.
The spans are made by one INSERT … SELECT for every 122,880 of them, through the store that the
loader writes with: traces of 12 spans with random ids, a millisecond apart, five in twelve a model
call of one of 20 models with ten attributes. Texts are 200 bytes and not 2,000, so that making them
takes minutes. The derived tables are made the same way: each trace is a rollout of five calls and
four tools, with an arm, a task and a reward. Each question about rollouts has at most 512 MB of
memory, the default of `lightning-ingest`; a question that needs more fails. Run it with
`make bench-ask`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from otel_lightning.collector.refresh import rollout_rows
from otel_lightning.collector.store import MEMORY_BYTES, Store, attribute_columns, open_store

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
DERIVE = """
    INSERT INTO llm_calls BY NAME
    SELECT
        md5('trace' || t) AS trace_id, substr(md5('call' || n), 1, 16) AS span_id,
        trace_id AS rollout_id, k::INTEGER AS step, 'agent-' || (t % 5) AS agent_name,
        'agents' AS service_name, 'model-' || (t % 20) AS response_model,
        make_timestamp_ns(1800000000000000000 + (t * 12 + k * 2) * 1000000) AS start_time,
        make_timestamp_ns(1800000000000000000 + (t * 12 + k * 2 + 1) * 1000000) AS end_time,
        if(k = 4, 'stop', 'tool_calls') AS finish_reason, 'chat' AS operation,
        100 AS input_tokens, (hash(n) % 400)::BIGINT AS output_tokens,
        if(hash(n) % 97 = 0, 'timeout', NULL) AS error_type,
        '[{{"role":"assistant","parts":[{{"type":"text","content":"'
            || repeat(md5('text' || n), 6) || '"}}]}}]' AS output_messages,
        sha256('state' || (t // 4) || '.' || k) AS state_hash, TRUE AS has_completion
    FROM (SELECT range AS n, range // 5 AS t, range % 5 AS k FROM range({first} * 5, {last} * 5));
    INSERT INTO tool_calls BY NAME
    SELECT
        md5('trace' || t) AS trace_id, substr(md5('tool' || n), 1, 16) AS span_id,
        trace_id AS rollout_id, substr(md5('call' || (t * 5 + k)), 1, 16) AS llm_span_id,
        'call-' || n AS tool_call_id, 'search' AS name,
        if(n % 9 = 0, 'timeout', NULL) AS error_type,
        make_timestamp_ns(1800000000000000000 + (t * 12 + k * 2 + 1) * 1000000) AS start_time,
        start_time AS end_time, to_json(md5('result' || n)) AS result
    FROM (SELECT range AS n, range // 4 AS t, range % 4 AS k FROM range({first} * 4, {last} * 4));
    INSERT INTO reward_events BY NAME
    SELECT
        md5('reward' || t) AS reward_id, md5('trace' || t) AS trace_id, trace_id AS rollout_id,
        'solved' AS name, (hash(t) % 11) / 10 AS value, 'span' AS source,
        make_timestamp_ns(1800000000000000000 + (t * 12 + 12) * 1000000) AS "time"
    FROM (SELECT range AS t FROM range({first}, {last}));
    INSERT INTO arms BY NAME
    SELECT md5('trace' || t) AS trace_id, trace_id AS rollout_id, 'prompt' AS key,
        ['terse', 'friendly', 'verbose'][1 + t % 3] AS arm, 0.33 AS propensity
    FROM (SELECT range AS t FROM range({first}, {last}));
    INSERT INTO rollout_tasks
    SELECT md5('trace' || t), 'task-' || (t // 4)
    FROM (SELECT range AS t FROM range({first}, {last}))
"""
SPANS_A_TRACE = 12
MODEL = "attributes['gen_ai.request.model']"
QUESTIONS = {
    "filter by model": f"""
        SELECT count(*) AS n, max(start_time) AS last FROM spans WHERE {MODEL} = 'model-7'""",
    "one trace by id": """
        SELECT name, start_time FROM spans WHERE trace_id = md5('trace' || {trace})""",
    "group by model and day": f"""
        SELECT {MODEL} AS m, start_time::DATE AS day, count(*) AS n FROM spans GROUP BY m, day""",
}
NEWEST = "ORDER BY start_time DESC, rollout_id LIMIT 50"
ID = "md5('trace' || {trace})"
BEGINS = "make_timestamp_ns(1800000000000000000 + {trace}::BIGINT * 12000000)"
DURING = f"start_time BETWEEN {BEGINS} AND {BEGINS} + INTERVAL 12 milliseconds"
ABOUT_ROLLOUTS = {
    "newest 50 rollouts": f"FROM rollouts {NEWEST}",
    "the 50 before one in the middle": f"""
        FROM rollouts
        WHERE start_time < make_timestamp_ns(1800000000000000000 + {{trace}}::BIGINT * 12000000)
        {NEWEST}""",
    "newest 50 of an agent": f"FROM rollout_rows WHERE agent_name = 'agent-3' {NEWEST}",
    "newest 50 with an outcome": f"FROM rollouts WHERE outcome = 'truncated' {NEWEST}",
    "newest 50 of an arm": f"""
        FROM rollout_rows WHERE list_contains(arms, 'prompt=verbose') {NEWEST}""",
    "newest 50 with a low reward": f"FROM rollouts WHERE final_reward < 0.05 {NEWEST}",
    "newest 50 with errors": f"FROM rollouts WHERE errors > 3 {NEWEST}",
    "newest 50 of much text": f"FROM rollouts WHERE output_tokens > 1800 {NEWEST}",
    "the 50 of the lowest reward": "FROM rollouts ORDER BY final_reward, rollout_id LIMIT 50",
    "one rollout by id": f"FROM rollouts WHERE rollout_id = {ID}",
    "50 rollouts by id": """
        FROM rollouts
        WHERE rollout_id IN (SELECT md5('trace' || ({trace} + range * 7)) FROM range(50))""",
    "the rewards of one rollout": f"FROM rewards WHERE rollout_id = {ID}",
    "the text of one rollout, by id and times": f"""
        SELECT step, input_messages, output_messages FROM llm_calls
        WHERE rollout_id = {ID} AND {DURING} ORDER BY step""",
    "the tools of one rollout, by id and times": f"""
        SELECT name, result FROM tool_calls WHERE rollout_id = {ID} AND {DURING}""",
}


def main() -> None:
    """Make the spans, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--store", type=Path, help="Keep the store here, or ask one kept before.")
    asked = parser.parse_args()
    spans: int = asked.spans
    with tempfile.TemporaryDirectory() as folder:
        path = asked.store or Path(folder) / "t.duckdb"
        if not path.exists():
            make(path, spans)
        questions = {
            name: sql.format(trace=spans // 24)
            for name, sql in (QUESTIONS | ABOUT_ROLLOUTS).items()
        }
        with open_store(path, read_only=True) as store:
            store.limit(MEMORY_BYTES)
            direct = [best(store, sql) for sql in questions.values()]
        ingester = start(path)
        with open_store(path, read_only=True) as store:
            served = [best(store, sql) for sql in questions.values()]
        ingester.stop()
        print(f"{spans:,} spans, {len(attribute_columns.KEYS)} promoted keys\n")
        print("| question | CPU ms | in process, ms | of an ingester, ms |\n|---|---|---|---|")
        for name, (wall, cpu), (asked_ms, _) in zip(questions, direct, served, strict=True):
            print(f"| {name} | {cpu:.0f} | {wall:.0f} | {asked_ms:.0f} |")


def make(path: Path, spans: int) -> None:
    """Fill a new store."""
    with open_store(path) as store:
        for first in range(0, spans, ROWS):
            last = min(first + ROWS, spans)
            store.execute(MAKE.format(first=first, last=last))
            traces = {"first": first // SPANS_A_TRACE, "last": last // SPANS_A_TRACE}
            store.execute(DERIVE.format(**traces))
        store.execute("CREATE TEMP TABLE made AS SELECT DISTINCT rollout_id FROM llm_calls")
        with store.transaction():
            rollout_rows.insert_stored(store, "made")
        store.checkpoint()


def best(store: Store, sql: str) -> tuple[float, float]:
    """Ask five times; return the least milliseconds, wall and CPU of this process."""
    wall, cpu = [], []
    for _ in range(5):
        begun, worked = time.perf_counter(), time.process_time()
        store.query(sql)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - worked)
    return min(wall) * 1000, min(cpu) * 1000


if __name__ == "__main__":
    main()
