-- A judgement may name a span, a response, a rollout or a trace, before or after that exists:
-- so what it judges is found when it is read. The most exact name that is known wins.

CREATE VIEW judgements AS FROM reward_events UNION ALL BY NAME FROM scores;

CREATE VIEW rewards AS
WITH resolved AS (
    SELECT
        e.*,
        coalesce(
            e.rollout_id,
            (SELECT min(c.rollout_id) FROM llm_calls c WHERE c.response_id = e.response_id),
            (SELECT min(c.rollout_id) FROM llm_calls c
             WHERE c.trace_id = e.trace_id AND (c.span_id = e.span_id OR list_contains(c.merged_span_ids, e.span_id))),
            (SELECT min(c.rollout_id) FROM llm_calls c WHERE c.trace_id = e.trace_id)
        ) AS judged_rollout_id,
        (SELECT min(c.span_id) FROM llm_calls c WHERE c.response_id = e.response_id) AS judged_span_id,
        (SELECT min(c.trace_id) FROM llm_calls c WHERE c.response_id = e.response_id) AS judged_trace_id
    FROM judgements e
)
SELECT
    reward_id,
    coalesce(judged_trace_id, trace_id) AS trace_id,
    coalesce(judged_span_id, span_id) AS span_id,
    response_id,
    judged_rollout_id AS rollout_id,
    name, value, label, explanation, source, "time"
FROM resolved;

-- Outcome: `terminated` once an outcome is known (a judgement, or a last answer that asks for no
-- tool), `truncated` if the last answer was cut off or failed, `open` while a tool result is awaited.
CREATE VIEW rollouts AS
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
        arg_max(finish_reason, step) AS last_finish_reason,
        arg_max(error_type IS NOT NULL, step) AS last_failed
    FROM llm_calls
    GROUP BY rollout_id
),
tools AS (
    SELECT rollout_id, count(*) AS tool_calls, count(error_type) AS errors FROM tool_calls GROUP BY rollout_id
),
judged AS (
    SELECT
        r.rollout_id,
        arg_max(r.value, r."time") FILTER (WHERE r.value IS NOT NULL) AS final_reward,
        min(e.task_id) AS task_id
    FROM rewards r JOIN judgements e USING (reward_id)
    GROUP BY r.rollout_id
),
tasks AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id)
SELECT
    c.rollout_id,
    coalesce(t.task_id, j.task_id) AS task_id,
    c.service_name, c.start_time, c.end_time,
    c.llm_calls,
    coalesce(x.tool_calls, 0) AS tool_calls,
    c.errors + coalesce(x.errors, 0) AS errors,
    c.input_tokens, c.output_tokens,
    j.final_reward,
    CASE
        WHEN j.final_reward IS NOT NULL THEN 'terminated'
        WHEN c.last_failed OR c.last_finish_reason = 'length' THEN 'truncated'
        WHEN c.last_finish_reason = 'stop' THEN 'terminated'
        ELSE 'open'
    END AS outcome
FROM calls c
LEFT JOIN tools x USING (rollout_id)
LEFT JOIN judged j USING (rollout_id)
LEFT JOIN tasks t USING (rollout_id);
