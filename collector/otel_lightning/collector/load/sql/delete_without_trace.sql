-- Rows without a trace expire by their own age; rows about an expired trace or log record go with it.
DELETE FROM logs WHERE trace_id IS NULL AND received_at < make_timestamp_ns($cutoff);
DELETE FROM reward_events WHERE trace_id IS NULL AND "time" < make_timestamp_ns($cutoff);
DELETE FROM rejected WHERE received_at < make_timestamp_ns($cutoff);
DELETE FROM stale WHERE kind = 'trace' AND id IN (FROM expired)
    OR kind = 'log' AND id NOT IN (SELECT log_id FROM logs);
DELETE FROM rollout_tasks WHERE rollout_id NOT IN (
    SELECT rollout_id FROM llm_calls WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM reward_events WHERE rollout_id IS NOT NULL);
UPDATE reward_events
SET placed_rollout_id = NULL, placed_trace_id = NULL, placed_span_id = NULL
WHERE placed_trace_id IN (FROM expired)
