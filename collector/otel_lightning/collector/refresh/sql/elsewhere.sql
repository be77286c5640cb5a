-- Leave in `signals` the rollouts whose calls were not derived now.
DELETE FROM signals WHERE rollout_id IN (SELECT rollout_id FROM new_llm_calls)
