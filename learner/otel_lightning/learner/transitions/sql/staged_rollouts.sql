-- One row per rollout: its task, how it ended, why it is excluded, and a fingerprint of all data
-- that its transitions are built from. Several statements instead of one, so that each can use all
-- of the memory limit.
--
-- The fingerprint of several rows is the sum of hash(hash(columns)), never bit_xor(hash(columns)).
-- DuckDB's hash(a, b, c) combines its arguments by XOR and does not mix the last one. If the last
-- column changes equally in two rows, both changes cancel; and equal rows cancel in any XOR.
CREATE OR REPLACE TEMP TABLE ended AS
WITH tried AS (
    SELECT rollout_id, any_value(status) AS status FROM attempts GROUP BY rollout_id
)
SELECT
    rollout_id,
    task_id,
    CASE
        WHEN outcome <> 'open' THEN outcome
        -- The last call may ask for a tool, but the process has ended: no further call comes.
        WHEN status IN ('ok', 'failed') THEN 'terminated'
        WHEN status = 'timeout' OR end_time < make_timestamp_ns($idle_before_ns) THEN 'truncated'
        ELSE outcome
    END AS outcome,
    coalesce(status = 'lost', FALSE) AS lost
FROM rollout_ends
LEFT JOIN tried USING (rollout_id);

CREATE OR REPLACE TEMP TABLE rollout_calls AS
WITH seen AS (
    SELECT
        *,
        coalesce(has_completion, FALSE) AS completed,
        $selected AS selected
    FROM llm_calls
    WHERE rollout_id IS NOT NULL AND step IS NOT NULL
)
SELECT
    rollout_id,
    arg_min_null(state_hash, step) AS first_state,
    count_if(completed AND selected) AS usable_calls,
    count_if(NOT completed) AS failed_calls,
    count_if(completed AND NOT selected) AS context_calls,
    sum(hash(hash(
        trace_id, span_id, step, completed, selected, list_sum(completion_logprobs),
        if($states_count, state_hash, NULL)
    ))) AS fingerprint
FROM seen
GROUP BY rollout_id;

-- First states whose user messages are not hashed yet.
CREATE OR REPLACE TEMP TABLE first_states AS
SELECT DISTINCT c.first_state AS state_hash
FROM rollout_calls c
JOIN ended e USING (rollout_id)
WHERE $by_user AND e.task_id IS NULL AND c.first_state IS NOT NULL
    AND c.first_state NOT IN (SELECT state_hash FROM task_messages);

$task_messages;

CREATE OR REPLACE TEMP TABLE rollout_rewards AS
SELECT rollout_id, sum(hash(hash(reward_id, name, value, "time", emitted, step))) AS fingerprint
FROM staged_rewards
GROUP BY rollout_id;

$contradicted;

CREATE OR REPLACE TEMP TABLE staged_rollouts AS
WITH tools AS (
    SELECT rollout_id, sum(hash(hash(span_id, tool_call_id, llm_span_id, error_type))) AS fingerprint
    FROM tool_calls
    WHERE $tools_count
    GROUP BY rollout_id
),
first_arms AS (
    SELECT
        rollout_id,
        first({'key': key, 'arm': arm, 'propensity': propensity, 'policy_version': policy_version}
            ORDER BY "time" NULLS LAST, key, arm) AS chosen
    FROM arms
    WHERE rollout_id IS NOT NULL
    GROUP BY rollout_id
),
joined AS (
    SELECT
        r.rollout_id,
        r.task_id,
        r.outcome,
        CASE
            WHEN r.task_id IS NOT NULL THEN 'id'
            WHEN $by_user AND u.user_hash IS NOT NULL THEN 'user'
            WHEN ($by_user OR $by_prompt) AND c.first_state IS NOT NULL THEN 'prompt'
            ELSE 'rollout'
        END AS named_by,
        ('0x' || left(sha256(CASE named_by
            WHEN 'id' THEN r.task_id WHEN 'user' THEN u.user_hash WHEN 'prompt' THEN c.first_state
            ELSE r.rollout_id
        END), 16))::UBIGINT AS task_hash,
        c.usable_calls, c.failed_calls, c.context_calls,
        a.chosen AS arm,
        j.rollout_id IS NOT NULL AS judged,
        x.rollout_id IS NOT NULL AS contradicted,
        r.lost,
        hash(c.fingerprint, t.fingerprint, j.fingerprint) AS fingerprint
    FROM ended r
    JOIN rollout_calls c USING (rollout_id)
    LEFT JOIN task_messages u ON u.state_hash = c.first_state
    LEFT JOIN tools t USING (rollout_id)
    LEFT JOIN rollout_rewards j USING (rollout_id)
    LEFT JOIN contradicted x USING (rollout_id)
    LEFT JOIN first_arms a USING (rollout_id)
)
SELECT
    row_number() OVER (ORDER BY task_hash, rollout_id) AS rollout,
    rollout_id, task_id, task_hash, outcome, arm,
    usable_calls, failed_calls, context_calls,
    CASE
        WHEN usable_calls + context_calls = 0 THEN 'without a completion'
        WHEN usable_calls = 0 THEN 'without a call of a selected agent'
        -- It may have sent its reward before it was cut off. Another attempt replaced it.
        WHEN lost THEN 'of an attempt that was lost'
        WHEN contradicted THEN 'with contradictory rewards'
        WHEN outcome = 'open' THEN 'still open'
        WHEN NOT judged THEN 'without a reward'
    END AS excluded,
    hash(rollout_id, task_id, if(lost, 'lost', outcome), arm, fingerprint, $settings) AS fingerprint
FROM joined;

DROP TABLE ended;
DROP TABLE rollout_calls;
DROP TABLE first_states;
DROP TABLE rollout_rewards;
DROP TABLE contradicted
