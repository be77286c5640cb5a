rollout_id, task_id, service_name, agent_name, model, epoch_ns(start_time) AS start_ns,
epoch_ns(end_time) AS end_ns, llm_calls, tool_calls, failed_calls + failed_tools AS errors, input_tokens,
output_tokens, arms, final_reward, outcome,
