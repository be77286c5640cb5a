-- What fine-tuning reads: the view `transitions`, its JSON as text.
SELECT
    rollout_id,
    step,
    coalesce(task_id, rollout_id) AS task,
    split,
    state_hash,
    messages::VARCHAR AS messages,
    tools::VARCHAR AS tools,
    completion::VARCHAR AS completion,
    temperature,
    prompt_token_ids,
    completion_token_ids,
    completion_logprobs,
    reward,
    advantage
FROM transitions
ORDER BY rollout_id, step
