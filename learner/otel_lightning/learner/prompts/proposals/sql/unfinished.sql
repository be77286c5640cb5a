SELECT DISTINCT run_id FROM prompts WHERE key = $key AND run_id NOT IN (SELECT run_id FROM runs) ORDER BY run_id
