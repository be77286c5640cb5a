FROM staged_calls WHERE task_hash BETWEEN $first::UBIGINT AND $last::UBIGINT
