-- Which signals the store has any of; a new store has few. `responses`: rewards that name a response.
-- `linked`: rewards that judge another trace than their carrier's.
(SELECT 'tasks' AS kind FROM rollout_tasks LIMIT 1) UNION ALL
(SELECT 'arms' FROM arms LIMIT 1) UNION ALL
(SELECT 'rewards' FROM reward_events WHERE rollout_id IS NOT NULL LIMIT 1) UNION ALL
(SELECT 'placed' FROM reward_events WHERE placed_rollout_id IS NOT NULL LIMIT 1) UNION ALL
(SELECT 'responses' FROM reward_events WHERE response_id IS NOT NULL LIMIT 1) UNION ALL
(SELECT 'linked' FROM reward_events WHERE placed_trace_id <> trace_id LIMIT 1)
