-- Rollouts that two measures judge, for each pair of them.
WITH judged AS (
    SELECT rollout_id, name || coalesce(' · ' || source, '') AS measure, avg(value) AS value
    FROM rewards
    WHERE value IS NOT NULL AND rollout_id IS NOT NULL
    GROUP BY ALL
),
ranked AS (SELECT *, percent_rank() OVER (PARTITION BY measure ORDER BY value) AS share FROM judged)
SELECT
    a.measure AS first, b.measure AS second, count(*) AS rollouts,
    -- No number where one of the measures is the same in all of these rollouts.
    nullif(corr(a.share, b.share), 'NaN'::DOUBLE) AS correlation,
    count(*) FILTER (abs(a.share - b.share) > 0.5) AS apart,
    arg_max(a.rollout_id, abs(a.share - b.share)) AS example
FROM ranked a
JOIN ranked b ON b.rollout_id = a.rollout_id AND b.measure > a.measure
GROUP BY ALL
ORDER BY apart DESC, rollouts DESC
LIMIT 20
