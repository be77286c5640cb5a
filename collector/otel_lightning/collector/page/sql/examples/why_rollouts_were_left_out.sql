SELECT excluded, count(*) AS rollouts
FROM transition_rollouts GROUP BY excluded ORDER BY rollouts DESC
