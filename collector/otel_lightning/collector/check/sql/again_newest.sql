-- Time of the last received span or log record, in nanoseconds since 1970; 0 if there is none.
SELECT coalesce(epoch_ns(max(received_at)), 0) AS newest
FROM (SELECT max(received_at) AS received_at FROM spans UNION ALL SELECT max(received_at) FROM logs)
