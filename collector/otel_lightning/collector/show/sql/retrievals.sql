SELECT
    span_id, llm_span_id, kind, name, query,
    documents::VARCHAR AS documents,
    error_type,
    epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns
FROM retrievals
WHERE rollout_id = $rollout AND (start_time IS NULL OR $during)
ORDER BY start_time, span_id
