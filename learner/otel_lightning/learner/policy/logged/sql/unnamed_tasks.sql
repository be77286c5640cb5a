-- The task of each rollout whose task nothing states: what its first call saw, as for transitions.
SELECT
    s.rollout_id,
    ('0x' || left(sha256(CASE
        WHEN $by_user AND u.user_hash IS NOT NULL THEN u.user_hash
        ELSE coalesce(s.first_state, s.rollout_id)
    END), 16))::UBIGINT AS unnamed
FROM policy_states s
LEFT JOIN task_messages u ON u.state_hash = s.first_state
