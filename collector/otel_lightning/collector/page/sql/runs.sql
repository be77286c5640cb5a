SELECT
    run_id, command, epoch_ns(started) AS started_ns, epoch_ns(ended) AS ended_ns, outcome, config, gate, metrics,
    artifact
FROM runs
WHERE
    ($command IS NULL OR command = $command)
    AND (
        $after_ns IS NULL
        OR (
            started <= make_timestamp_ns($after_ns)
            AND (started < make_timestamp_ns($after_ns) OR run_id < $after_id)
        )
    )
ORDER BY started DESC, run_id DESC
LIMIT $rows
