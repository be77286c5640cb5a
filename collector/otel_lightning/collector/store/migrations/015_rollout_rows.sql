-- One narrow row per rollout, which deriving keeps: lists and filters read it instead of grouping
-- all calls and placing all rewards. Ids are random, so they are stored uncompressed: that halves
-- the cost of finding one.
CREATE TABLE rollout_rows (
    rollout_id VARCHAR NOT NULL USING COMPRESSION uncompressed,
    trace_id VARCHAR NOT NULL USING COMPRESSION uncompressed,
    task_id VARCHAR,
    service_name VARCHAR,
    agent_name VARCHAR,
    model VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS,
    llm_calls BIGINT,
    tool_calls BIGINT,
    failed_calls BIGINT,
    failed_tools BIGINT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    finish_reason VARCHAR,
    -- The outcome as the calls and agents alone tell it.
    ended VARCHAR,
    arms VARCHAR[],
    final_reward DOUBLE,
    outcome VARCHAR
);

-- The call that a reward judges, found when the reward or the call arrives: where the reward names
-- a response, or a trace or span without a rollout.
ALTER TABLE reward_events ADD COLUMN placed_rollout_id VARCHAR;
ALTER TABLE reward_events ADD COLUMN placed_trace_id VARCHAR;
ALTER TABLE reward_events ADD COLUMN placed_span_id VARCHAR;

UPDATE reward_events SET
    placed_rollout_id = found.rollout_id,
    placed_trace_id = found.trace_id,
    placed_span_id = found.span_id
FROM (
    SELECT e.reward_id, r.trace_id, r.span_id, coalesce(r.rollout_id, s.rollout_id, t.rollout_id) AS rollout_id
    FROM reward_events e
    LEFT JOIN (
        SELECT
            response_id,
            min(rollout_id) AS rollout_id,
            min(span_id) AS span_id,
            min(trace_id) AS trace_id
        FROM llm_calls
        WHERE response_id IN (SELECT response_id FROM reward_events)
        GROUP BY response_id
    ) r ON r.response_id = e.response_id
    LEFT JOIN (
        SELECT trace_id, place AS span_id, min(rollout_id) AS rollout_id
        FROM (
            SELECT trace_id, unnest(list_append(merged_span_ids, span_id)) AS place, rollout_id
            FROM llm_calls
            WHERE trace_id IN (SELECT trace_id FROM reward_events WHERE rollout_id IS NULL)
        )
        GROUP BY ALL
    ) s ON s.trace_id = e.trace_id AND s.span_id = e.span_id
    LEFT JOIN (
        SELECT trace_id, min(rollout_id) AS rollout_id
        FROM llm_calls
        WHERE trace_id IN (SELECT trace_id FROM reward_events WHERE rollout_id IS NULL)
        GROUP BY trace_id
    ) t ON t.trace_id = e.trace_id
    WHERE e.rollout_id IS NULL OR e.response_id IS NOT NULL
) found
WHERE reward_events.reward_id = found.reward_id;

CREATE OR REPLACE VIEW judgements AS
SELECT
    reward_id, trace_id, span_id, response_id, rollout_id, task_id, name, value, label, explanation, source, "time"
FROM reward_events
UNION ALL BY NAME
FROM scores;

-- Each part has the rollout as a column of a table, so that a filter on it reads the other columns
-- of matching rows only. Scores name a rollout, as a rule; those that name only a response, span or trace are placed when
-- they are read.
CREATE OR REPLACE VIEW rewards AS
WITH unplaced AS (FROM scores WHERE rollout_id IS NULL),
candidates AS (
    SELECT trace_id, span_id, merged_span_ids, rollout_id
    FROM llm_calls
    SEMI JOIN (SELECT trace_id FROM unplaced WHERE trace_id IS NOT NULL) USING (trace_id)
),
by_response AS (
    SELECT
        response_id,
        min(rollout_id) AS rollout_id,
        min(span_id) AS span_id,
        min(trace_id) AS trace_id
    FROM llm_calls
    SEMI JOIN (SELECT response_id FROM unplaced WHERE response_id IS NOT NULL) USING (response_id)
    GROUP BY response_id
),
by_span AS (
    SELECT trace_id, place AS span_id, min(rollout_id) AS rollout_id
    FROM (
        SELECT trace_id, unnest(list_append(merged_span_ids, span_id)) AS place, rollout_id
        FROM candidates
    )
    GROUP BY ALL
),
by_trace AS (SELECT trace_id, min(rollout_id) AS rollout_id FROM candidates GROUP BY trace_id)
SELECT
    reward_id,
    coalesce(placed_trace_id, trace_id) AS trace_id,
    coalesce(placed_span_id, span_id) AS span_id,
    response_id, rollout_id, name, value, label, explanation, source, "time"
FROM reward_events
WHERE rollout_id IS NOT NULL
UNION ALL
SELECT
    reward_id,
    coalesce(placed_trace_id, trace_id) AS trace_id,
    coalesce(placed_span_id, span_id) AS span_id,
    response_id, placed_rollout_id AS rollout_id, name, value, label, explanation, source, "time"
FROM reward_events
WHERE rollout_id IS NULL
UNION ALL
SELECT reward_id, trace_id, span_id, response_id, rollout_id, name, value, label, explanation, source, "time"
FROM scores
WHERE rollout_id IS NOT NULL
UNION ALL
SELECT
    e.reward_id,
    coalesce(r.trace_id, e.trace_id) AS trace_id,
    coalesce(r.span_id, e.span_id) AS span_id,
    e.response_id,
    coalesce(r.rollout_id, s.rollout_id, t.rollout_id) AS rollout_id,
    e.name, e.value, e.label, e.explanation, e.source, e."time"
FROM unplaced e
LEFT JOIN by_response r ON r.response_id = e.response_id
LEFT JOIN by_span s ON s.trace_id = e.trace_id AND s.span_id = e.span_id
LEFT JOIN by_trace t ON t.trace_id = e.trace_id;

INSERT INTO rollout_rows BY NAME
WITH calls AS (
    SELECT
        rollout_id,
        arg_min(trace_id, step) AS trace_id,
        min(service_name) AS service_name,
        arg_min(agent_name, step) AS agent_name,
        arg_min(coalesce(response_model, request_model), step) AS model,
        min(start_time) AS start_time,
        max(end_time) AS end_time,
        count(step) AS llm_calls,
        count(error_type) AS failed_calls,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens,
        arg_max_null(finish_reason, step) AS finish_reason,
        arg_max(error_type IS NOT NULL, step) AS last_failed
    FROM llm_calls
    WHERE rollout_id IS NOT NULL
    GROUP BY rollout_id
),
tools AS (
    SELECT rollout_id, count(*) AS tool_calls, count(error_type) AS failed_tools FROM tool_calls GROUP BY rollout_id
),
roots AS (
    SELECT rollout_id, max(end_time) AS end_time FROM agent_runs WHERE parent_span_id IS NULL GROUP BY rollout_id
),
tasks AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id),
flags AS (
    SELECT rollout_id, list(DISTINCT key || '=' || arm ORDER BY key || '=' || arm) AS arms
    FROM arms
    WHERE rollout_id IS NOT NULL
    GROUP BY rollout_id
),
judged AS (
    SELECT
        coalesce(rollout_id, placed_rollout_id) AS rollout_id,
        arg_max(value, {'time': "time", 'id': reward_id}) FILTER ("time" IS NOT NULL) AS final_reward,
        max("time") FILTER (value IS NOT NULL) AS "time",
        count(value) > 0 AS is_judged,
        min(task_id) AS task_id
    FROM reward_events
    GROUP BY ALL
),
joined AS (
    SELECT
        c.* EXCLUDE (last_failed),
        coalesce(x.tool_calls, 0) AS tool_calls,
        coalesce(x.failed_tools, 0) AS failed_tools,
        coalesce(t.task_id, j.task_id) AS task_id,
        f.arms,
        j.final_reward,
        CASE
            WHEN c.last_failed OR c.finish_reason IN ('length', 'content_filter', 'error') THEN 'truncated'
            WHEN o.end_time >= c.end_time OR c.finish_reason = 'stop' THEN 'terminated'
            ELSE 'open'
        END AS ended,
        j.is_judged AND coalesce(j."time" >= c.end_time, TRUE) AS was_judged
    FROM calls c
    LEFT JOIN tools x USING (rollout_id)
    LEFT JOIN roots o USING (rollout_id)
    LEFT JOIN tasks t USING (rollout_id)
    LEFT JOIN flags f USING (rollout_id)
    LEFT JOIN judged j USING (rollout_id)
)
SELECT
    * EXCLUDE (was_judged),
    if(ended = 'open' AND was_judged, 'terminated', ended) AS outcome
FROM joined
ORDER BY start_time;

-- Outcome: `truncated` if the last call was cut off or failed, however it was judged; `terminated`
-- once a judgement came behind the last call, the root agent ended, or the last answer asks for no
-- tool; else `open`.
CREATE OR REPLACE VIEW rollout_ends AS
SELECT
    rollout_id, task_id, service_name, start_time, end_time, llm_calls, failed_calls AS errors,
    input_tokens, output_tokens, final_reward, outcome
FROM rollout_rows;

CREATE OR REPLACE VIEW rollouts AS
SELECT
    rollout_id, task_id, service_name, start_time, end_time, llm_calls, tool_calls,
    failed_calls + failed_tools AS errors,
    input_tokens, output_tokens, final_reward, outcome
FROM rollout_rows;
