-- About how many spans the stale traces have. One that was not looked at yet counts for $each.
SELECT coalesce(sum(coalesce(spans, $each)), 0)::BIGINT AS n FROM stale WHERE kind = 'trace'
