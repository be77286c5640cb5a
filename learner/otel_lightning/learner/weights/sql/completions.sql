-- What fine-tuning reads: the view `transitions`, its JSON as text. All rows of a task share its
-- hash, which the split went by too; a rollout without a task's id has the hash of its first state.
SELECT
    t.rollout_id,
    t.step,
    coalesce(t.task_hash, t.task_id, t.rollout_id) AS task,
    t.split,
    t.state_hash,
    t.agent_name AS agent,
    t.model,
    t.messages::VARCHAR AS messages,
    t.tools::VARCHAR AS tools,
    t.completion::VARCHAR AS completion,
    t.temperature,
    t.prompt_token_ids,
    t.completion_token_ids,
    t.completion_logprobs,
    t.reward,
    t.advantage
FROM transitions t
ORDER BY t.rollout_id, t.step
