-- The task of each rollout with a choice: its id, else what its first call saw, as for transitions.
CREATE OR REPLACE TEMP TABLE policy_tasks AS
WITH stated AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id),
judged AS (
    SELECT r.rollout_id, min(e.task_id) AS task_id
    FROM rewards r
    JOIN (SELECT reward_id, task_id FROM judgements WHERE task_id IS NOT NULL) e USING (reward_id)
    WHERE $received
    GROUP BY r.rollout_id
)
SELECT c.rollout_id, coalesce(t.task_id, j.task_id) AS task_id
FROM policy_choices c
LEFT JOIN stated t USING (rollout_id)
LEFT JOIN judged j USING (rollout_id);

CREATE OR REPLACE TEMP TABLE policy_states AS
SELECT rollout_id, arg_min_null(state_hash, step) AS first_state
FROM llm_calls
SEMI JOIN (SELECT rollout_id FROM policy_tasks WHERE task_id IS NULL AND ($by_user OR $by_prompt))
    USING (rollout_id)
WHERE step IS NOT NULL
GROUP BY rollout_id;

CREATE OR REPLACE TEMP TABLE first_states AS
SELECT DISTINCT first_state AS state_hash
FROM policy_states
WHERE $by_user AND first_state IS NOT NULL
    AND first_state NOT IN (SELECT state_hash FROM task_messages);

$task_messages
