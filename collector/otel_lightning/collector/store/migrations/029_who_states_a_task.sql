-- derive: again
-- `stated_by` is the trace that states the task of a rollout; NULL if a judgement without a trace
-- does. With it the row goes when the rollout of that trace gets another id. Before, such rows stayed;
-- those of rollouts without any other row are deleted here.
ALTER TABLE rollout_tasks ADD COLUMN stated_by VARCHAR;
DELETE FROM rollout_tasks WHERE rollout_id NOT IN (
    SELECT rollout_id FROM llm_calls WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM tool_calls WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM agent_runs WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM arms WHERE rollout_id IS NOT NULL
    UNION SELECT rollout_id FROM reward_events WHERE rollout_id IS NOT NULL);
