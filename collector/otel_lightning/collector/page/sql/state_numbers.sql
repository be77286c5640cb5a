SELECT
    count(*) AS visits, count(DISTINCT c.rollout_id) AS rollouts, avg(t.return_to_go) AS mean,
    min(t.return_to_go) AS least, max(t.return_to_go) AS most
FROM llm_calls c
LEFT JOIN transition_rows t ON t.rollout_id = c.rollout_id AND t.step = c.step
WHERE c.state_hash = $state
