-- A trace that was read and continues a rollout that waits has to wait with that rollout.
UPDATE stale SET near = waits.near FROM waits
WHERE kind = 'trace' AND id = waits.trace_id AND coalesce(stale.near, id) NOT IN $waiting
RETURNING id
