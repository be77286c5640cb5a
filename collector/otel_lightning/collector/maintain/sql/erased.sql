-- The selected traces, which are erased as a whole, and their rollouts and responses.
CREATE OR REPLACE TEMP TABLE erased_traces AS
SELECT DISTINCT trace_id FROM (
    SELECT trace_id FROM spans WHERE trace_id IN $traces OR ($condition)
        OR "gen_ai.conversation.id" IN $conversations OR "session.id" IN $conversations
    UNION ALL SELECT trace_id FROM logs WHERE trace_id IN $traces
    UNION ALL SELECT trace_id FROM llm_calls
        WHERE rollout_id IN $rollouts OR conversation_id IN $conversations
    UNION ALL SELECT trace_id FROM tool_calls WHERE rollout_id IN $rollouts
    UNION ALL SELECT trace_id FROM agent_runs WHERE rollout_id IN $rollouts
    UNION ALL SELECT trace_id FROM arms WHERE rollout_id IN $rollouts
) WHERE trace_id IS NOT NULL;

CREATE OR REPLACE TEMP TABLE erased_responses AS
SELECT DISTINCT response_id FROM llm_calls
WHERE response_id IS NOT NULL AND trace_id IN (FROM erased_traces);

CREATE OR REPLACE TEMP TABLE rollouts_of_traces AS
SELECT rollout_id, trace_id FROM (
    SELECT rollout_id, trace_id FROM llm_calls UNION ALL SELECT rollout_id, trace_id FROM tool_calls
    UNION ALL SELECT rollout_id, trace_id FROM agent_runs
    UNION ALL SELECT rollout_id, trace_id FROM retrievals
) WHERE rollout_id IS NOT NULL;

-- A rollout is erased if all its traces are erased. Otherwise it is derived again from the others.
CREATE OR REPLACE TEMP TABLE erased_rollouts AS
SELECT rollout_id FROM rollouts_of_traces
GROUP BY rollout_id HAVING bool_and(trace_id IN (FROM erased_traces))
UNION SELECT unnest($rollout_list);
