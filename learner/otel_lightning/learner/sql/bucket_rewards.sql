FROM changed_rewards WHERE task_hash BETWEEN {first}::UBIGINT AND {last}::UBIGINT
