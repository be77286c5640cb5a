-- Spans that ended after they were received: the sender's clock is ahead of the receiver's.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM spans) AS total,
    min('span ' || span_id || ' of trace ' || trace_id) AS example,
    service_name AS kind
FROM spans
WHERE end_time > received_at + INTERVAL 5 SECONDS
GROUP BY service_name
ORDER BY n DESC, kind
