SELECT
    run_id, command, config, data_fingerprint, metrics, gate, outcome, artifact,
    run_id IN (SELECT run_id FROM run_steps) AS has_curve,
    epoch_ns(started) AS started_ns,
    epoch_ns(ended) AS ended_ns
FROM runs
WHERE command IN ('transitions', 'policy', 'weights')
ORDER BY started, run_id
