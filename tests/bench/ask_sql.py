"""The SQL with which `ask.py`, and `beside_once.py` with an older version, make and ask a store."""

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
    INSERT INTO rollout_tasks BY NAME
    SELECT md5('trace' || t) AS rollout_id, 'task-' || (t // 4) AS task_id
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
