-- The first state of each rollout with a choice, or only of those whose task nothing states, and the
-- messages of the states that have not been hashed yet.
CREATE OR REPLACE TEMP TABLE policy_states AS
WITH named AS (
    SELECT rollout_id FROM rollout_tasks WHERE NOT $of_all
    UNION ALL
    SELECT rollout_id FROM policy_judged_tasks WHERE NOT $of_all
),
wanted AS (SELECT rollout_id FROM policy_choices ANTI JOIN named USING (rollout_id))
SELECT w.rollout_id, arg_min_null(l.state_hash, l.step) AS first_state
FROM wanted w
LEFT JOIN (
    SELECT rollout_id, state_hash, step
    FROM llm_calls
    WHERE step IS NOT NULL AND ($by_user OR $by_prompt)
) l USING (rollout_id)
GROUP BY w.rollout_id;

CREATE OR REPLACE TEMP TABLE first_states AS
SELECT DISTINCT first_state AS state_hash
FROM policy_states
WHERE $by_user AND first_state IS NOT NULL
    AND first_state NOT IN (SELECT state_hash FROM task_messages);

$task_messages
