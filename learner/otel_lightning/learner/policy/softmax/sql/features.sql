-- The columns that are known when the arm of a rollout is chosen: those of its first call's input.
WITH first_calls AS (
    SELECT rollout_id, service_name, request_model, start_time, input_messages::JSON AS messages
    FROM llm_calls
    WHERE step = 0 AND rollout_id IS NOT NULL
),
inputs AS (
    SELECT
        *,
        array_to_string(list_transform(
            list_filter(messages::JSON[], lambda message: (message->>'$.role') = 'user'),
            lambda message: array_to_string(message->>'$.parts[*].content', ' ')
        ), ' ') AS input
    FROM first_calls
)
SELECT rollout_id, $expressions
FROM inputs
