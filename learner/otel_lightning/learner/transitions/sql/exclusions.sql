SELECT excluded AS reason, count(*) AS rollouts
FROM transition_rollouts
WHERE excluded IS NOT NULL
GROUP BY excluded
ORDER BY rollouts DESC, reason
