-- Runs of a command in which a gate judged a candidate that is no control, the oldest first.
SELECT config::VARCHAR AS config, data_fingerprint, started
FROM runs
WHERE command = $command AND gate IS NOT NULL AND (gate ->> '$.shuffled') IS NULL
ORDER BY started
