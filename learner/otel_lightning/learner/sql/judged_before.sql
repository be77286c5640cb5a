-- Settings of the runs of a command that a gate has judged by the same data.
SELECT config::VARCHAR AS config
FROM runs
WHERE command = $command AND data_fingerprint = $data AND gate IS NOT NULL
ORDER BY started
