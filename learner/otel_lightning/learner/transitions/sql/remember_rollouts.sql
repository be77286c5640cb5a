-- Run this after the transition rows are written: if the run is killed before, the next run sees
-- these tasks as changed and builds them again.
BEGIN;
DELETE FROM transition_rollouts WHERE task_hash IN (SELECT task_hash FROM changed_tasks);
INSERT INTO transition_rollouts BY NAME
SELECT rollout_id, task_hash, usable_calls, failed_calls, context_calls, excluded, fingerprint
FROM staged_rollouts
WHERE task_hash IN (SELECT task_hash FROM changed_tasks);
COMMIT
