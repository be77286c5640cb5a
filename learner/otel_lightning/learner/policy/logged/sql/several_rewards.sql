-- The staged rewards of rollouts that have several, without contradictory ones.
SELECT
    dense_rank() OVER (ORDER BY rollout_id) AS rollout, rollout_id,
    reward_id, name, value, "time", emitted, step
FROM staged_rewards
WHERE rollout_id NOT IN (SELECT rollout_id FROM contradicted)
