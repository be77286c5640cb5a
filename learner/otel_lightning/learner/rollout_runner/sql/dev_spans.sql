-- The spans that arrived since a time, by the rollout that they name: how many, and by whom written.
SELECT
    coalesce("lightning.rollout.id", resource['lightning.rollout.id']) AS rollout_id,
    count(*) AS spans,
    list(DISTINCT scope_name ORDER BY scope_name) FILTER (scope_name IS NOT NULL) AS scopes
FROM spans
WHERE received_at >= make_timestamp_ns($since)
GROUP BY ALL
ORDER BY ALL
