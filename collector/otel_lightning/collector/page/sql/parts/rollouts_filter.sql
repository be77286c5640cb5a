AND service_name = $service -- if: service
AND agent_name = $agent -- if: agent
AND task_id = $task -- if: task
AND outcome = $outcome -- if: outcome
AND list_contains(arms, $arm) -- if: arm
AND final_reward >= $least_reward -- if: least_reward
AND final_reward <= $most_reward -- if: most_reward
AND (final_reward IS NOT NULL) = $rewarded -- if: rewarded
AND llm_calls >= $least_calls -- if: least_calls
AND failed_calls + failed_tools >= $least_errors -- if: least_errors
AND (starts_with(rollout_id, $id) OR starts_with(task_id, $id)) -- if: id
AND rollout_id IN (SELECT t.rollout_id FROM transition_rollouts t WHERE t.excluded = $excluded) -- if: excluded
