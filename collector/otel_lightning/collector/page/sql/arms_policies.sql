SELECT version, status, arms, run_id, epoch_ns(created) AS created_ns
FROM policies
WHERE key = $key
ORDER BY status = 'live' DESC, created DESC
LIMIT 5
