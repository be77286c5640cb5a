-- The step that each chosen reward judges; a part of `staged_rewards`.
WITH located AS (
    SELECT
        w.*,
        p.step,
        a.name AS agent,
        least(w."time", a.end_time) AS place_time,
        c.end_time AS last_call_end,
        p.step IS NULL AND w.trace_id IS NOT NULL AND (
            w.source = 'agentlightning'
            OR coalesce(w.source IN ('span', 'log') AND w."time" <= greatest(c.end_time, g.end_time), FALSE)
        ) AS emitted
    FROM chosen_rewards w
    JOIN calls_end c USING (rollout_id)
    LEFT JOIN agents_end g USING (rollout_id)
    LEFT JOIN places p ON p.rollout_id = w.rollout_id AND p.span_id = w.span_id
    LEFT JOIN agent_runs a ON a.trace_id = w.trace_id AND a.span_id = w.span_id
),
-- A reward that arrived before the rollout's last call ended belongs to the last call before the
-- reward. If the reward judges an agent, only the calls of that agent count.
early AS MATERIALIZED (
    FROM located
    WHERE step IS NULL AND (emitted OR agent IS NOT NULL) AND place_time < last_call_end
),
timed AS (
    SELECT c.rollout_id, c.agent_name, c.end_time, c.step
    FROM (SELECT DISTINCT rollout_id FROM early) e
    JOIN llm_calls c USING (rollout_id)
    WHERE c.step IS NOT NULL
),
by_agent AS (
    SELECT e.reward_id, t.step
    FROM early e
    ASOF JOIN timed t
        ON e.rollout_id = t.rollout_id AND e.agent = t.agent_name AND e.place_time >= t.end_time
),
by_time AS (
    SELECT e.reward_id, coalesce(t.step, -1) AS step
    FROM early e
    ASOF LEFT JOIN timed t ON e.rollout_id = t.rollout_id AND e.place_time >= t.end_time
)
SELECT
    l.reward_id, l.rollout_id, l.name, l.value, l."time", l.emitted,
    coalesce(l.step, a.step, t.step) AS step
FROM located l
LEFT JOIN by_agent a USING (reward_id)
LEFT JOIN by_time t USING (reward_id)
