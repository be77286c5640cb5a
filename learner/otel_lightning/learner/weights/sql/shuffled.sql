-- Seed with which the rewards of the present transitions were shuffled; NULL if they were not.
SELECT (config ->> '$.shuffle_rewards')::BIGINT AS seed
FROM runs
WHERE command = 'transitions' AND outcome = 'done'
ORDER BY ended DESC, run_id DESC
LIMIT 1
