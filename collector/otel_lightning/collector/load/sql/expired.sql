-- The traces whose last span or log record was received before the cutoff, except for those of `spared`.
CREATE TEMP TABLE expired AS
SELECT trace_id FROM (
    SELECT trace_id, received_at FROM spans UNION ALL
    SELECT trace_id, received_at FROM logs WHERE trace_id IS NOT NULL
) GROUP BY trace_id HAVING max(received_at) < make_timestamp_ns($cutoff)
    AND trace_id NOT IN (FROM spared);
-- Rollouts that lose at least one of their traces.
CREATE TEMP TABLE shortened AS
SELECT DISTINCT rollout_id FROM llm_calls
WHERE rollout_id IS NOT NULL AND trace_id IN (FROM expired)
