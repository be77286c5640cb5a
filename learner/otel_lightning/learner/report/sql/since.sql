-- What was measured since under the version that a policy run made.
SELECT count(*) AS rollouts, count(DISTINCT r.task_id) AS tasks, avg(r.final_reward) AS reward
FROM rollout_rows r
WHERE isfinite(r.final_reward) AND r.rollout_id IN (
    SELECT rollout_id FROM arms WHERE key = $key AND policy_version = $version
)
