SELECT
    run_id, command, epoch_ns(started) AS started_ns, epoch_ns(ended) AS ended_ns, outcome, config, gate, metrics,
    artifact, data_fingerprint
FROM runs
WHERE run_id = $run
