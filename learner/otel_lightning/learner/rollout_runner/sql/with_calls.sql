-- Those of these rollouts that have a model call.
SELECT DISTINCT rollout_id FROM llm_calls WHERE rollout_id IN $rollouts
