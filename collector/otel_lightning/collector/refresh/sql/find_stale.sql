-- A row without a time was stored without deriving (--no-derive), or was marked by --rebuild.
SELECT
    count(*) FILTER (epoch_ns(received_at) >= $since) AS new_ids,
    epoch_ns(min(received_at) FILTER (epoch_ns(received_at) >= $since)) AS new_ns,
    epoch_ns(min(received_at)) AS oldest_ns,
    count(*) > count(received_at) AS has_undated
FROM stale
WHERE coalesce(near, id) NOT IN $waiting
