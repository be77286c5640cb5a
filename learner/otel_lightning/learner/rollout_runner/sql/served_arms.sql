-- The arms of one flag in the traces of these rollouts.
SELECT DISTINCT rollout_id, arm FROM arms WHERE rollout_id IN $rollouts AND key = $key
