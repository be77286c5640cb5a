-- Look-ups of documents that these calls used, and those that no call used.
WITH made AS MATERIALIZED (
    FROM retrievals
    WHERE rollout_id = $rollout AND start_time IS NOT NULL
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
    UNION ALL
    FROM retrievals WHERE rollout_id = $rollout AND start_time IS NULL
)
SELECT
    llm_span_id, kind, name, left(query, $most_text) AS query,
    if(length(documents::VARCHAR) < $most_text, documents::VARCHAR, NULL) AS documents,
    json_array_length(documents) AS found, error_type, epoch_ns(end_time) - epoch_ns(start_time) AS duration_ns
FROM made
WHERE llm_span_id IS NULL OR list_contains($spans, llm_span_id)
ORDER BY start_time
LIMIT 200
