-- Choices of an arm without a propensity.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM arms) AS total,
    min('arm ' || arm || ' of ' || key || ' in rollout ' || coalesce(rollout_id, '?')) AS example,
    key AS kind
FROM arms
WHERE propensity IS NULL
GROUP BY key
ORDER BY n DESC, kind
