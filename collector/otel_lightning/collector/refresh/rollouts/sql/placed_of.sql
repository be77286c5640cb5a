-- The rewards that name no rollout, and judge a call of one of these rollouts.
SELECT placed_rollout_id AS rollout_id, reward_id, value, epoch_ns("time") AS time_ns, task_id
FROM reward_events
WHERE rollout_id IS NULL AND placed_rollout_id IN (FROM {rows})
