-- The traces of the rollouts that have calls in the traces of `chosen`. What one refresh derived has no
-- row before the earliest one of these traces, so `$since` holds for all of it.
SELECT DISTINCT trace_id FROM llm_calls
WHERE $since AND rollout_id IN (
    SELECT rollout_id FROM llm_calls WHERE $since AND trace_id IN (FROM chosen)
)
