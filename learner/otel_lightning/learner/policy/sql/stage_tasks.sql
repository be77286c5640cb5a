-- The first state of each rollout with a choice whose task nothing states, and the messages of the
-- states that have not been hashed yet.
CREATE OR REPLACE TEMP TABLE policy_states AS
WITH unnamed AS (
    SELECT rollout_id
    FROM policy_choices
    ANTI JOIN rollout_tasks USING (rollout_id)
    ANTI JOIN policy_judged_tasks USING (rollout_id)
)
SELECT u.rollout_id, arg_min_null(l.state_hash, l.step) AS first_state
FROM unnamed u
LEFT JOIN (
    SELECT rollout_id, state_hash, step
    FROM llm_calls
    WHERE step IS NOT NULL AND ($by_user OR $by_prompt)
) l USING (rollout_id)
GROUP BY u.rollout_id;

CREATE OR REPLACE TEMP TABLE first_states AS
SELECT DISTINCT first_state AS state_hash
FROM policy_states
WHERE $by_user AND first_state IS NOT NULL
    AND first_state NOT IN (SELECT state_hash FROM task_messages);

$task_messages
