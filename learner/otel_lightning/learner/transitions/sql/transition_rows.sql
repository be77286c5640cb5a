-- The computed rows of a bucket, joined with the columns of their rollouts.
SELECT
    r.rollout_id, n.step, n.trace_id, n.span_id, r.task_id, n.split,
    r.arm.key AS arm_key, r.arm.arm AS arm, r.arm.propensity AS propensity,
    n.behavior_logprob, r.arm.policy_version AS policy_version,
    n.reward, n.return_to_go, n.advantage, n.terminated, n.truncated, n.next_span_id,
    r.task_hash
FROM {rows} n
JOIN staged_rollouts r USING (rollout)
WHERE r.task_hash BETWEEN $first::UBIGINT AND $last::UBIGINT
