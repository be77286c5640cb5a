-- A row without a time was stored without deriving (--no-derive), or was marked by --rebuild.
SELECT
    count(*) FILTER (NOT waits AND epoch_ns(received_at) >= $since) AS new_ids,
    epoch_ns(min(received_at) FILTER (NOT waits AND epoch_ns(received_at) >= $since)) AS new_ns,
    epoch_ns(min(received_at) FILTER (NOT waits)) AS oldest_ns,
    epoch_ns(min(received_at) FILTER (waits)) AS put_off_ns,
    count(*) FILTER (NOT waits) > count(received_at) FILTER (NOT waits) AS has_undated
FROM (SELECT received_at, coalesce(near, id) IN $waiting AS waits FROM stale)
