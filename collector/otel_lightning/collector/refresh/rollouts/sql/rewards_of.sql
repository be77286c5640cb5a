-- The rewards that name a rollout among these: they belong to it, wherever their carrier is.
SELECT rollout_id, reward_id, value, epoch_ns("time") AS time_ns, task_id
FROM reward_events
WHERE rollout_id IN (FROM {rows})
