-- A tool of which no call is known to have asked for it belongs to the call that began before it; a
-- tool before the first call belongs to none. Two branches, so that DuckDB skips the tools of other
-- times; materialized, because it reads the table twice for the first rows of an order.
WITH found AS MATERIALIZED (
    FROM tool_calls
    WHERE rollout_id = $rollout AND start_time IS NOT NULL
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
    UNION ALL
    FROM tool_calls WHERE rollout_id = $rollout AND start_time IS NULL
),
calls AS (
    SELECT span_id AS call_span_id, start_time AS called_at
    FROM llm_calls
    WHERE rollout_id = $rollout
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
),
placed AS (
    SELECT found.*, coalesce(llm_span_id, call_span_id) AS step_span_id
    FROM found
    ASOF LEFT JOIN calls ON start_time >= called_at
)
SELECT
    step_span_id, tool_call_id, name, left(arguments::VARCHAR, $most_text) AS arguments,
    length(arguments::VARCHAR) AS arguments_length,
    left(result::VARCHAR, $most_text) AS result, length(result::VARCHAR) AS result_length,
    error_type, told_error, epoch_ns(end_time) - epoch_ns(start_time) AS duration_ns
FROM placed
WHERE step_span_id IS NULL OR list_contains($spans, step_span_id)
ORDER BY start_time
LIMIT 1000
