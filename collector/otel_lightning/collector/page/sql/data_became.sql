SELECT
    excluded, count(*) AS rollouts, sum(usable_calls)::BIGINT AS calls, sum(failed_calls)::BIGINT AS failed,
    sum(context_calls)::BIGINT AS context
FROM transition_rollouts
GROUP BY excluded
ORDER BY rollouts DESC, excluded
