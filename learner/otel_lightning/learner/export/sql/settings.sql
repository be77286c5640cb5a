-- Settings of the last successful build of transitions.
SELECT config::VARCHAR AS config
FROM runs
WHERE command = 'transitions' AND outcome = 'done'
ORDER BY ended DESC, run_id DESC
LIMIT 1
