SELECT run_id, command, outcome, gate ->> '$.gain' AS gain, gate ->> '$.lower' AS lower
FROM runs ORDER BY started DESC LIMIT 20
