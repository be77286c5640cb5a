-- What some rollouts share that was known before the arm was chosen: the targeting key, ids of users,
-- sessions and conversations, and the process. Only rollouts whose choice was made between $first and
-- $last, or all if these are NULL. `value` is a hash of the value and of its name, `unit`.
WITH chosen AS MATERIALIZED (
    SELECT rollout_id, trace_id, span_id
    FROM logged_choices
    WHERE $first IS NULL OR "time" BETWEEN $first::TIMESTAMP_NS AND $last::TIMESTAMP_NS
),
traces AS MATERIALIZED (
    SELECT rollout_id, trace_id FROM chosen WHERE trace_id <> ''
    UNION
    SELECT rollout_id, trace_id
    FROM llm_calls
    SEMI JOIN chosen USING (rollout_id)
    WHERE step = 0 AND ($first IS NULL OR start_time BETWEEN $first::TIMESTAMP_NS AND $last::TIMESTAMP_NS)
),
near_spans AS MATERIALIZED (
    SELECT
        trace_id, span_id,
        if($of_process, resource_json, NULL) AS resource_json,
        list_filter(map_entries(attributes), lambda entry: regexp_matches(entry.key, $names)) AS entries,
        if($of_key, list_filter(events, lambda event: event.name = $evaluation), []) AS evaluations
    FROM spans
    SEMI JOIN traces USING (trace_id)
    WHERE $first IS NULL OR start_time BETWEEN $first::TIMESTAMP_NS AND $last::TIMESTAMP_NS
),
stated AS (SELECT trace_id, unnest(entries) AS entry FROM near_spans),
keys AS (
    SELECT trace_id, span_id, unnest(evaluations).attributes AS evaluation FROM near_spans
    UNION ALL
    SELECT trace_id, span_id, attributes AS evaluation FROM logs WHERE $of_key AND event_name = $evaluation
),
resources AS (
    SELECT resource_json, resource_json::JSON::MAP(VARCHAR, VARCHAR) AS resource
    FROM (SELECT DISTINCT resource_json FROM near_spans WHERE resource_json IS NOT NULL)
),
processes AS (
    -- Two hosts have processes with the same number.
    SELECT
        resource_json, entry.key AS unit,
        if(entry.key = 'process.pid', concat(entry.value, ' ', resource['host.name']), entry.value) AS value
    FROM (SELECT resource_json, resource, unnest(map_entries(resource)) AS entry FROM resources)
    WHERE regexp_matches(entry.key, $processes)
),
found AS (
    SELECT rollout_id, entry.key AS unit, entry.value AS value
    FROM stated
    JOIN traces USING (trace_id)
    UNION ALL
    SELECT rollout_id, $context AS unit, evaluation[$context] AS value
    FROM keys
    JOIN chosen USING (trace_id, span_id)
    WHERE evaluation[$flag] IN $keys
    UNION ALL
    SELECT rollout_id, unit, value
    FROM processes
    JOIN (SELECT DISTINCT trace_id, resource_json FROM near_spans) USING (resource_json)
    JOIN traces USING (trace_id)
)
SELECT DISTINCT rollout_id, unit, hash(unit, value) AS value
FROM found
WHERE value <> ''
