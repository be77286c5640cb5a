-- Rewards of these calls and of their tools, and rewards of no call. A reward may name a span that
-- was merged into a call, or the span of a tool: `call_span_id` is that of the call.
WITH places AS (
    SELECT unnest(list_append(merged_span_ids, span_id)) AS place, span_id AS call_span_id
    FROM llm_calls
    WHERE rollout_id = $rollout
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
    UNION ALL
    SELECT span_id AS place, llm_span_id AS call_span_id
    FROM tool_calls
    WHERE rollout_id = $rollout
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
),
by_place AS (SELECT place, min(call_span_id) AS call_span_id FROM places GROUP BY place)
SELECT
    reward_id, call_span_id, response_id, name, value, label, left(explanation, 2000) AS explanation, source,
    epoch_ns("time") AS time_ns
FROM rewards
LEFT JOIN by_place ON place = span_id
WHERE rollout_id = $rollout AND (call_span_id IS NULL OR list_contains($spans, call_span_id))
ORDER BY "time", reward_id
LIMIT 1000
