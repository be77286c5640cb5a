-- The user's text in the first call of some rollouts with a choice.
SELECT
    rollout_id, service_name,
    left(array_to_string(list_transform(
        list_filter(input_messages::JSON[], lambda message: (message->>'$.role') = 'user'),
        lambda message: array_to_string(message->>'$.parts[*].content', ' ')
    ), ' '), 10000) AS input
FROM llm_calls
WHERE step = 0
    AND rollout_id IN (SELECT rollout_id FROM policy_choices ORDER BY hash(rollout_id) LIMIT $most)
