SELECT
    t.arm, epoch_ns(date_trunc('day', r.start_time)::TIMESTAMP) AS day_ns, count(*) AS rollouts,
    avg(t.return_to_go) AS mean
FROM transition_rows t
JOIN rollout_rows r ON r.rollout_id = t.rollout_id
WHERE t.arm_key = $key AND t.step = 0
GROUP BY ALL
ORDER BY day_ns, t.arm
