-- Insert the rows of the rollouts of these calls, tools and agents; `signals` has the rest.
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
        -- An embedding is no step.
        count(step) AS llm_calls,
        count(error_type) AS failed_calls,
        -- A sum that the column cannot hold is no true count: it becomes NULL, and no error.
        try_cast(sum(input_tokens) AS BIGINT) AS input_tokens,
        try_cast(sum(output_tokens) AS BIGINT) AS output_tokens,
        -- Also if it is NULL: `arg_max` would take the reason of an earlier call.
        arg_max_null(finish_reason, step) AS finish_reason,
        arg_max(error_type IS NOT NULL, step) AS last_failed
    FROM $calls
    WHERE rollout_id IN (SELECT rollout_id FROM signals)
    GROUP BY rollout_id
),
tools AS (
    SELECT rollout_id, count(*) AS tool_calls, count(error_type) AS failed_tools
    FROM $tools
    WHERE rollout_id IN (SELECT rollout_id FROM signals)
    GROUP BY rollout_id
),
roots AS (
    SELECT rollout_id, max(end_time) AS end_time
    FROM $agents
    WHERE parent_span_id IS NULL AND rollout_id IN (SELECT rollout_id FROM signals)
    GROUP BY rollout_id
),
joined AS (
    SELECT
        c.* EXCLUDE (last_failed),
        coalesce(x.tool_calls, 0) AS tool_calls,
        coalesce(x.failed_tools, 0) AS failed_tools,
        g.task_id, g.arms, g.final_reward,
        CASE
            WHEN c.last_failed OR c.finish_reason IN ('length', 'content_filter', 'error') THEN 'truncated'
            -- The agent's own span ended after the last call, so the agent returned.
            WHEN o.end_time >= c.end_time OR c.finish_reason = 'stop' THEN 'terminated'
            ELSE 'open'
        END AS ended,
        -- A reward after the last call tells that the rollout has ended. One without a time counts
        -- too.
        g.is_judged AND coalesce(g.judged_time >= c.end_time, TRUE) AS was_judged
    FROM calls c
    JOIN signals g USING (rollout_id)
    LEFT JOIN tools x USING (rollout_id)
    LEFT JOIN roots o USING (rollout_id)
)
SELECT
    * EXCLUDE (was_judged),
    if(ended = 'open' AND was_judged, 'terminated', ended) AS outcome
FROM joined
ORDER BY start_time
