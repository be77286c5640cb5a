-- DuckDB answers `min` from statistics, without a scan.
SELECT coalesce(min(oldest) < make_timestamp_ns($cutoff), false) AS found FROM (
    SELECT min(received_at) AS oldest FROM spans
    UNION ALL SELECT min(received_at) FROM logs
    UNION ALL SELECT min(received_at) FROM rejected
)
