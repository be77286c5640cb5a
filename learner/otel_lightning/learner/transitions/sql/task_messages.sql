-- Hash the user's messages of the states in `first_states`. Hashes are cached by state, so that each
-- run reads the text of new states only.
INSERT INTO task_messages
WITH users AS (
    SELECT
        state_hash,
        list_transform(
            list_filter(json_extract(input_messages, '$[*]'), lambda message: message ->> '$.role' = 'user'),
            lambda message: message -> '$.parts'
        ) AS messages
    FROM llm_calls
    WHERE state_hash IN (SELECT state_hash FROM first_states)
)
SELECT state_hash, min(if(len(messages) > 0, sha256(messages::VARCHAR), NULL)) AS user_hash
FROM users
GROUP BY state_hash
