-- A judgement or an arm without a trace goes with the log record that it was read from, whose time it
-- has: it may be much older than the time at which the record came.
CREATE TEMP TABLE gone_times AS
SELECT coalesce("time", observed_time, TIMESTAMP '1970-01-01') AS "time" FROM logs
WHERE trace_id IS NULL AND log_id IN (FROM expired_logs)
EXCEPT
SELECT coalesce("time", observed_time, TIMESTAMP '1970-01-01') FROM logs
WHERE trace_id IS NULL AND log_id NOT IN (FROM expired_logs);
-- Rollouts that lose at least one of their traces or judgements.
CREATE TEMP TABLE shortened AS
SELECT rollout_id FROM llm_calls WHERE rollout_id IS NOT NULL AND trace_id IN (FROM expired)
UNION
SELECT coalesce(rollout_id, placed_rollout_id) AS rollout_id FROM reward_events
WHERE trace_id IS NULL AND coalesce(rollout_id, placed_rollout_id) IS NOT NULL
    AND coalesce("time", TIMESTAMP '1970-01-01') IN (FROM gone_times)
