SELECT rollout, reward_id, name, value, "time", emitted, step
FROM changed_rewards
WHERE task_hash BETWEEN $first::UBIGINT AND $last::UBIGINT
