-- What fine-tuning reads: the view `transitions`, its JSON as text. All rows of a task share its
-- hash, which the split went by too; a rollout without a task's id has the hash of its first state.
--
-- `is_carried` is true if all parts of the messages and of the completion are of a type in $carried.
-- Parsing all messages for it in Python would take five times as long. A part without a type is not
-- in the list of types, so the parts are counted too.
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
    c.content,
    c.finish_reason,
    t.temperature,
    t.prompt_token_ids,
    t.completion_token_ids,
    t.completion_logprobs,
    t.reward,
    -- Of the calls of all agents, also if the rows of one are learned from.
    sum(t.reward) OVER (
        PARTITION BY t.rollout_id ORDER BY t.step
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS outcome,
    t.advantage,
    epoch_ns(c.start_time) AS began,
    len(list_filter(
        json_extract_string(t.messages, '$[*].parts[*].type'), lambda type: type IN $carried
    )) = coalesce(list_sum(json_array_length(t.messages, '$[*].parts')), 0)
    AND len(list_filter(
        json_extract_string(t.completion, '$[*].parts[*].type'), lambda type: type IN $carried
    )) = coalesce(list_sum(json_array_length(t.completion, '$[*].parts')), 0) AS is_carried
FROM transitions t
LEFT JOIN llm_calls c USING (trace_id, span_id)
ORDER BY t.rollout_id, t.step
