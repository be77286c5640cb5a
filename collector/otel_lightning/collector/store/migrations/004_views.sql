-- A judgement may name a span, a response, a rollout or a trace, before or after that exists:
-- so what it judges is found when it is read. The most exact name that is known wins.

CREATE VIEW judgements AS FROM reward_events UNION ALL BY NAME FROM scores;

CREATE VIEW rewards AS
WITH unplaced AS (SELECT trace_id FROM judgements WHERE rollout_id IS NULL AND trace_id IS NOT NULL),
candidates AS (
    SELECT trace_id, span_id, merged_span_ids, rollout_id FROM llm_calls SEMI JOIN unplaced USING (trace_id)
),
by_response AS (
    SELECT
        response_id,
        min(rollout_id) AS rollout_id,
        min(span_id) AS span_id,
        min(trace_id) AS trace_id
    FROM llm_calls
    WHERE response_id IN (SELECT response_id FROM judgements)
    GROUP BY response_id
),
by_span AS (
    SELECT trace_id, place AS span_id, min(rollout_id) AS rollout_id
    FROM (
        SELECT trace_id, span_id AS place, rollout_id FROM candidates
        UNION ALL
        SELECT trace_id, unnest(merged_span_ids), rollout_id FROM candidates
    )
    GROUP BY ALL
),
by_trace AS (SELECT trace_id, min(rollout_id) AS rollout_id FROM candidates GROUP BY trace_id)
SELECT
    e.reward_id,
    coalesce(r.trace_id, e.trace_id) AS trace_id,
    coalesce(r.span_id, e.span_id) AS span_id,
    e.response_id,
    coalesce(e.rollout_id, r.rollout_id, s.rollout_id, t.rollout_id) AS rollout_id,
    e.name, e.value, e.label, e.explanation, e.source, e."time"
FROM judgements e
LEFT JOIN by_response r ON r.response_id = e.response_id
LEFT JOIN by_span s ON s.trace_id = e.trace_id AND s.span_id = e.span_id
LEFT JOIN by_trace t ON t.trace_id = e.trace_id;

-- Outcome: `truncated` if the last call was cut off or failed, however it was judged; `terminated`
-- once a judgement came behind the last call, the root agent ended, or the last answer asks for no
-- tool; else `open`.
CREATE VIEW rollout_ends AS
WITH calls AS (
    SELECT
        rollout_id,
        min(service_name) AS service_name,
        min(start_time) AS start_time,
        max(end_time) AS end_time,
        count(*) AS llm_calls,
        count(error_type) AS errors,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens,
        arg_max_null(finish_reason, step) AS last_finish_reason,
        arg_max(error_type IS NOT NULL, step) AS last_failed
    FROM llm_calls
    GROUP BY rollout_id
),
roots AS (
    SELECT rollout_id, max(end_time) AS end_time FROM agent_runs WHERE parent_span_id IS NULL GROUP BY rollout_id
),
judged AS (
    SELECT
        r.rollout_id,
        arg_max(r.value, r."time") AS final_reward,
        max(r."time") FILTER (r.value IS NOT NULL) AS "time",
        count(r.value) > 0 AS is_judged,
        min(e.task_id) AS task_id
    FROM rewards r
    LEFT JOIN (SELECT reward_id, task_id FROM judgements WHERE task_id IS NOT NULL) e USING (reward_id)
    -- What a rule or a judge says later ends nothing.
    WHERE NOT coalesce(starts_with(r.source, 'rule:') OR starts_with(r.source, 'judge:'), FALSE)
    GROUP BY r.rollout_id
),
tasks AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id)
SELECT
    c.rollout_id,
    coalesce(t.task_id, j.task_id) AS task_id,
    c.service_name, c.start_time, c.end_time,
    c.llm_calls, c.errors, c.input_tokens, c.output_tokens,
    j.final_reward,
    CASE
        WHEN c.last_failed OR c.last_finish_reason IN ('length', 'content_filter', 'error') THEN 'truncated'
        WHEN j.is_judged AND coalesce(j."time" >= c.end_time, TRUE) THEN 'terminated'
        WHEN o.end_time >= c.end_time THEN 'terminated'
        WHEN c.last_finish_reason = 'stop' THEN 'terminated'
        ELSE 'open'
    END AS outcome
FROM calls c
LEFT JOIN judged j USING (rollout_id)
LEFT JOIN roots o USING (rollout_id)
LEFT JOIN tasks t USING (rollout_id);

CREATE VIEW rollouts AS
WITH tools AS (
    SELECT rollout_id, count(*) AS tool_calls, count(error_type) AS errors FROM tool_calls GROUP BY rollout_id
)
SELECT
    e.rollout_id, e.task_id, e.service_name, e.start_time, e.end_time, e.llm_calls,
    coalesce(x.tool_calls, 0) AS tool_calls,
    e.errors + coalesce(x.errors, 0) AS errors,
    e.input_tokens, e.output_tokens, e.final_reward, e.outcome
FROM rollout_ends e
LEFT JOIN tools x USING (rollout_id);
