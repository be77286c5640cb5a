SELECT rollout_id, step, response_model, end_time - start_time AS took, output_tokens
FROM llm_calls ORDER BY took DESC LIMIT 20
