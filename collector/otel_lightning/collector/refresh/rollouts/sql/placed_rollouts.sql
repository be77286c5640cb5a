SELECT DISTINCT placed_rollout_id FROM reward_events
WHERE placed_rollout_id IS NOT NULL AND reward_id IN (FROM to_place)
