SELECT epoch_ns(max(newest)) AS newest FROM (
    SELECT max(received_at) AS newest FROM spans
    UNION ALL SELECT max(received_at) FROM logs
)
