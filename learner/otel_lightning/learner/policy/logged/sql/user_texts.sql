-- The user's text, hashed, in the first call of each rollout that `stage_tasks` staged, for one among
-- $every texts.
SELECT s.rollout_id, u.input
FROM (SELECT rollout_id, hash(first_state) AS state FROM policy_states) s
JOIN (
    SELECT hash(state_hash) AS state, hash(user_hash) AS input
    FROM task_messages
    WHERE user_hash IS NOT NULL AND hash(user_hash) % $every = 0
) u USING (state)
