-- One row per rollout: the frame `rollouts` of a rule. Scores of rules are hidden, so that running
-- a rule again gives the same result. JSON that is one string is given as this string.
WITH seen AS (
    SELECT
        *,
        error_type IS NOT NULL AND state_hash IS NOT NULL
            AND lead(step) OVER (PARTITION BY rollout_id, state_hash ORDER BY step) IS NOT NULL
            AS was_repeated,
        CASE WHEN contains(output_messages::VARCHAR, 'arguments_raw') THEN len(list_filter(
            json_extract(output_messages, '$[*].parts[*]'),
            lambda part: part ->> '$.type' = 'tool_call'
                AND coalesce(part ->> '$.arguments_raw', '') NOT IN ('', 'null')
                AND json_type(part, '$.arguments') IS DISTINCT FROM 'OBJECT'
        )) END AS malformed
    FROM llm_calls
    WHERE rollout_id IS NOT NULL AND step IS NOT NULL
),
calls AS (
    SELECT
        rollout_id,
        list(DISTINCT agent_name ORDER BY agent_name) FILTER (agent_name IS NOT NULL) AS agent_names,
        list(DISTINCT coalesce(response_model, request_model) ORDER BY coalesce(response_model, request_model))
            FILTER (coalesce(response_model, request_model) IS NOT NULL) AS models,
        count(error_type) AS failed_calls,
        count_if(was_repeated) AS repeated_calls,
        coalesce(sum(malformed), 0)::BIGINT AS malformed_calls,
        arg_max_null(finish_reason, step) AS finish_reason,
        arg_max_null(error_type, step) AS error_type,
        arg_min(input_messages, step)::VARCHAR AS input_messages,
        arg_max(output_messages, step)::VARCHAR AS output_messages
    FROM seen
    GROUP BY rollout_id
),
tools AS (
    SELECT
        rollout_id,
        count(error_type) AS tool_errors,
        count_if(error_type IS NULL AND told_error) AS told_tool_errors,
        count(arguments) - count(DISTINCT (name, arguments::VARCHAR)) FILTER (arguments IS NOT NULL)
            AS repeated_tools,
        list(
            {name: name, arguments: arguments::VARCHAR, result: result::VARCHAR, error_type: error_type}
            ORDER BY start_time, tool_call_id, name
        ) AS tools
    FROM tool_calls
    GROUP BY rollout_id
),
given AS (
    SELECT
        rollout_id,
        list({name: name, value: value, label: label, span_id: span_id, source: source} ORDER BY "time", reward_id)
            AS rewards
    FROM rewards
    WHERE NOT coalesce(starts_with(source, 'rule:'), FALSE)
    GROUP BY rollout_id
),
given_tasks AS (
    SELECT
        task_id,
        if(json_type(input) = 'VARCHAR', input ->> '$', input::VARCHAR) AS input,
        if(json_type(expected) = 'VARCHAR', expected ->> '$', expected::VARCHAR) AS expected,
        metadata::VARCHAR AS metadata
    FROM tasks
)
SELECT
    r.rollout_id,
    coalesce(a.task_id, r.task_id) AS task_id,
    r.service_name,
    coalesce(c.agent_names, []) AS agent_names,
    coalesce(c.models, []) AS models,
    r.start_time,
    r.end_time,
    (epoch_ns(r.end_time) - epoch_ns(r.start_time)) / 1e9 AS seconds,
    r.llm_calls,
    c.failed_calls,
    r.tool_calls,
    coalesce(t.tool_errors, 0) AS tool_errors,
    coalesce(t.told_tool_errors, 0) AS told_tool_errors,
    (c.repeated_calls + coalesce(t.repeated_tools, 0))::BIGINT AS retries,
    c.malformed_calls,
    r.input_tokens,
    r.output_tokens,
    c.finish_reason,
    c.error_type,
    c.input_messages,
    c.output_messages,
    coalesce(t.tools, []) AS tools,
    coalesce(g.rewards, []) AS rewards,
    a.status,
    a.exit_code,
    a.output,
    k.input, k.expected, k.metadata
FROM rollouts r
JOIN calls c USING (rollout_id)
LEFT JOIN tools t USING (rollout_id)
LEFT JOIN given g USING (rollout_id)
LEFT JOIN attempts a USING (rollout_id)
LEFT JOIN given_tasks k ON k.task_id = coalesce(a.task_id, r.task_id)
WHERE $among
UNION ALL BY NAME
-- Rollouts of `lightning-learn run` whose agent made no model call.
SELECT
    a.rollout_id,
    a.task_id,
    [] AS agent_names,
    [] AS models,
    a.started AS start_time,
    a.ended AS end_time,
    (epoch_ns(a.ended) - epoch_ns(a.started)) / 1e9 AS seconds,
    0 AS llm_calls,
    0 AS failed_calls,
    0 AS tool_calls,
    0 AS tool_errors,
    0 AS told_tool_errors,
    0 AS retries,
    0 AS malformed_calls,
    [] AS tools,
    coalesce(g.rewards, []) AS rewards,
    a.status,
    a.exit_code,
    a.output,
    k.input, k.expected, k.metadata
FROM attempts a
LEFT JOIN given_tasks k USING (task_id)
LEFT JOIN given g USING (rollout_id)
WHERE $silent AND $among AND rollout_id NOT IN (SELECT rollout_id FROM calls)
