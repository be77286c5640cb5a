SELECT
    key, count(*) AS choices, count(DISTINCT arm) AS arms, count(DISTINCT rollout_id) AS rollouts,
    count(propensity) AS with_propensity, epoch_ns(max("time")) AS last_ns
FROM arms
GROUP BY key
ORDER BY rollouts DESC, key
LIMIT 50
