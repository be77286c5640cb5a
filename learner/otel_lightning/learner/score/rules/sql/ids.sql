-- The calls that a score may refer to, with their trace.
SELECT rollout_id, span_id, min(trace_id) AS trace_id
FROM llm_calls
WHERE rollout_id IS NOT NULL AND step IS NOT NULL
GROUP BY ALL
