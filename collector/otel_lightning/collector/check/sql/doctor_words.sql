-- Received rewards that are a word without a number. Words of judges and rules are in `scores`.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM reward_events) AS total,
    min('''' || label || '''' || concat_ws('', ' of rollout ' || rollout_id, ' of trace ' || trace_id)) AS example,
    name AS kind
FROM reward_events
WHERE value IS NULL AND label IS NOT NULL
GROUP BY name
ORDER BY n DESC, kind
