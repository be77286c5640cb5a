-- The staged rewards of the rollouts with a task that one of two models ran.
SELECT
    dense_rank() OVER (ORDER BY w.rollout_id) AS rollout, r.task_id AS task, r.model,
    w.reward_id, w.name, w.value, w."time", w.emitted, w.step
FROM staged_rewards w
JOIN rollout_rows r USING (rollout_id)
WHERE r.task_id IS NOT NULL AND r.model IN $models AND isfinite(w.value)
