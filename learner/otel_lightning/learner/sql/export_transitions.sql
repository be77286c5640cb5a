-- One row a transition, with its text. $splits and $threshold are put in as literals.
SELECT
    rollout_id, step, task_id, split, agent_name, reward, advantage,
    advantage > $threshold AS above,
    messages::VARCHAR AS messages,
    tools::VARCHAR AS tools,
    completion::VARCHAR AS completion,
    prompt_token_ids, completion_token_ids, completion_logprobs
FROM transitions
WHERE split IN ($splits) AND ($all OR advantage > $threshold)
