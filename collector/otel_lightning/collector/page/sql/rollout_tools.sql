-- Two branches, so that DuckDB skips the tools of other times; materialized, because it reads the
-- table twice for the first rows of an order.
WITH found AS MATERIALIZED (
    FROM tool_calls
    WHERE rollout_id = $rollout AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns)
    UNION ALL
    FROM tool_calls WHERE rollout_id = $rollout AND start_time IS NULL
)
SELECT
    llm_span_id, tool_call_id, name, left(arguments::VARCHAR, $most_text) AS arguments,
    length(arguments::VARCHAR) AS arguments_length,
    left(result::VARCHAR, $most_text) AS result, length(result::VARCHAR) AS result_length,
    error_type, told_error, epoch_ns(end_time) - epoch_ns(start_time) AS duration_ns
FROM found
WHERE list_contains($spans, llm_span_id)
ORDER BY start_time
LIMIT 1000
