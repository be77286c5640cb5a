-- Chosen rewards with a number, of rollouts without a model call: how many, and one of the rollouts.
SELECT count(*) AS n, min(rollout_id) AS rollout
FROM rewards
ANTI JOIN (SELECT rollout_id FROM llm_calls WHERE step IS NOT NULL) USING (rollout_id)
WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen
