DELETE FROM reward_events
WHERE trace_id IS NULL AND coalesce("time", TIMESTAMP '1970-01-01') IN (FROM gone_times);
DELETE FROM arms
WHERE trace_id IS NULL AND coalesce("time", TIMESTAMP '1970-01-01') IN (FROM gone_times);
DELETE FROM logs WHERE trace_id IS NULL AND log_id IN (FROM expired_logs);
DELETE FROM rejected WHERE received_at < (FROM expired_before);
DELETE FROM stale WHERE kind = 'trace' AND id IN (FROM expired)
    OR kind = 'log' AND id NOT IN (SELECT log_id FROM logs);
DELETE FROM rollout_tasks WHERE rollout_id NOT IN (
    SELECT rollout_id FROM llm_calls WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM reward_events WHERE rollout_id IS NOT NULL);
UPDATE reward_events
SET placed_rollout_id = NULL, placed_trace_id = NULL, placed_span_id = NULL
WHERE placed_trace_id IN (FROM expired)
