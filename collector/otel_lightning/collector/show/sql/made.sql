-- Whether transitions were built of a rollout; `task_hash` is what their rows are sorted by.
SELECT excluded, task_hash
FROM transition_rollouts
WHERE rollout_id = $rollout
