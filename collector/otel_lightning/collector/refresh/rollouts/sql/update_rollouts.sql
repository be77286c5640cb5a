-- Bring task, arms and rewards up to date where the calls of a rollout stayed as they were.
UPDATE rollout_rows SET
    task_id = g.task_id,
    arms = g.arms,
    final_reward = g.final_reward,
    outcome = if(
        ended = 'open' AND g.is_judged AND coalesce(g.judged_time >= end_time, TRUE), 'terminated', ended
    )
FROM {rows} g
WHERE rollout_rows.rollout_id = g.rollout_id
