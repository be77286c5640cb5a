-- Rollouts of these attempts without any model call.
SELECT rollout_id FROM attempts WHERE rollout_id IN $rollouts AND rollout_id NOT IN (
    SELECT rollout_id FROM llm_calls WHERE rollout_id IN $rollouts
)
