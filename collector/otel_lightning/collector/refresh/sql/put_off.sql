-- A trace that was read and continues a rollout that waits has to wait with that rollout.
UPDATE stale SET near = found.rollout_id FROM (
    SELECT mine.trace_id, min(rollout_id) AS rollout_id
    FROM sought mine JOIN met theirs USING (key) JOIN (
        SELECT trace_id, rollout_id FROM llm_calls
        UNION ALL SELECT id, near FROM stale WHERE kind = 'trace'
    ) known ON known.trace_id = theirs.trace_id
    WHERE mine.trace_id IN (FROM changed) AND theirs.trace_id IN (FROM frontier)
        AND rollout_id IN $waiting
    GROUP BY mine.trace_id
) found
WHERE kind = 'trace' AND id = found.trace_id AND coalesce(near, id) NOT IN $waiting
RETURNING id
