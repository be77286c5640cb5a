-- The traces of `chosen` that belong to a rollout that waits.
SELECT trace_id, min(rollout_id) AS rollout_id
FROM (
    SELECT trace_id, rollout_id FROM llm_calls WHERE $since
    UNION ALL SELECT id, near FROM stale WHERE kind = 'trace'
)
WHERE trace_id IN (FROM chosen) AND rollout_id IN $waiting
GROUP BY trace_id
