-- The reward of each rollout that has one reward. Rollouts with several need the rules for repeated
-- judgements, which `several_rewards` applies to them only.
CREATE OR REPLACE TEMP TABLE policy_rewards AS
SELECT rollout_id, any_value(value) AS value, count(*) AS rewards, bool_and(isfinite(value)) AS finite
FROM rewards
SEMI JOIN (SELECT rollout_id FROM llm_calls WHERE step IS NOT NULL) USING (rollout_id)
WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen
GROUP BY rollout_id
