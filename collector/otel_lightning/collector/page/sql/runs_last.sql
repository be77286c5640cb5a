SELECT run_id, command, outcome, gate, epoch_ns(started) AS started_ns
FROM runs
WHERE command <> 'transitions'
ORDER BY started DESC
LIMIT 1
