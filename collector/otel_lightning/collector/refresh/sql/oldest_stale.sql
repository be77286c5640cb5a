SELECT count(*) AS n, epoch_ns(min(received_at)) AS since
FROM stale
WHERE epoch_ns(received_at) >= $since AND coalesce(near, id) NOT IN $waiting
