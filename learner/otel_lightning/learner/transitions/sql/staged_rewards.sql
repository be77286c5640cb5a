-- The chosen rewards with the step that each one judges. A step of NULL is the whole rollout.
-- `emitted`: the agent sent it during the rollout, so it is a separate reward. It does not replace
-- an earlier judgement.
-- Several statements instead of one, so that each can use all of the memory limit.
CREATE OR REPLACE TEMP TABLE chosen_rewards AS
SELECT reward_id, rollout_id, trace_id, span_id, name, value, source, "time"
FROM rewards
WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen;

CREATE OR REPLACE TEMP TABLE calls_end AS
SELECT rollout_id, max(end_time) AS end_time FROM llm_calls WHERE step IS NOT NULL GROUP BY rollout_id;

CREATE OR REPLACE TEMP TABLE agents_end AS
SELECT rollout_id, max(end_time) AS end_time FROM agent_runs GROUP BY rollout_id;

-- The spans that belong to a call: its own span, duplicate spans that were merged into it, and
-- spans of the tools that it requested.
CREATE OR REPLACE TEMP TABLE places AS
WITH judged_tools AS MATERIALIZED (
    SELECT rollout_id, span_id, llm_span_id
    FROM tool_calls
    WHERE llm_span_id IS NOT NULL AND span_id IN (SELECT span_id FROM chosen_rewards)
),
found AS (
    SELECT rollout_id, place AS span_id, min(step) AS step
    FROM (
        SELECT rollout_id, span_id AS place, step
        FROM llm_calls
        WHERE span_id IN (SELECT span_id FROM chosen_rewards)
        UNION ALL
        SELECT rollout_id, unnest(merged_span_ids), step FROM llm_calls WHERE len(merged_span_ids) > 0
        UNION ALL
        SELECT c.rollout_id, t.span_id, c.step
        FROM judged_tools t
        JOIN llm_calls c ON c.rollout_id = t.rollout_id AND c.span_id = t.llm_span_id
    )
    WHERE step IS NOT NULL
    GROUP BY ALL
)
FROM found;

CREATE OR REPLACE TEMP TABLE staged_rewards AS
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
LEFT JOIN by_time t USING (reward_id);

DROP TABLE chosen_rewards;
DROP TABLE calls_end;
DROP TABLE agents_end;
DROP TABLE places
