-- The last attempt of a run that did not end well.
SELECT status, exit_code, reason, errors
FROM attempts
WHERE run_id = $run_id AND status <> 'ok'
ORDER BY ended DESC, rollout_id DESC
LIMIT 1
