SELECT
    c.rollout_id, c.step, epoch_ns(c.start_time) AS start_ns, c.agent_name, t.arm, t.reward, t.return_to_go,
    t.advantage,
    if(length(c.output_messages::VARCHAR) < $most_text, c.output_messages::VARCHAR, NULL) AS answer,
    if(length(c.input_messages::VARCHAR) < $most_text, c.input_messages::VARCHAR, NULL) AS question
FROM llm_calls c
LEFT JOIN transition_rows t ON t.rollout_id = c.rollout_id AND t.step = c.step
WHERE c.state_hash = $state
ORDER BY t.return_to_go DESC NULLS LAST, c.rollout_id
LIMIT $rows
