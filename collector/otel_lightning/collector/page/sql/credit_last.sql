SELECT config
FROM runs
WHERE command = 'transitions' AND outcome = 'done'
ORDER BY started DESC
LIMIT 1
