-- Traces that share a key or a rollout with an erased trace are derived again without it: a tool call
-- that was traced on its own has its arguments from the call that asked for it.
CREATE OR REPLACE TEMP TABLE tied_traces AS
SELECT DISTINCT trace_id FROM (
    SELECT trace_id FROM trace_keys
    WHERE key IN (SELECT key FROM trace_keys WHERE trace_id IN (FROM erased_traces))
    UNION ALL SELECT trace_id FROM rollouts_of_traces WHERE rollout_id IN (
        SELECT rollout_id FROM rollouts_of_traces WHERE trace_id IN (FROM erased_traces))
) WHERE trace_id NOT IN (FROM erased_traces);

INSERT INTO stale BY NAME SELECT 'trace' AS kind, trace_id AS id FROM tied_traces;
DELETE FROM stale WHERE kind = 'trace' AND id IN (FROM erased_traces);
DELETE FROM logs WHERE trace_id IS NULL AND (
    attributes['lightning.rollout.id'] IN (FROM erased_rollouts)
    OR attributes['gen_ai.response.id'] IN (FROM erased_responses));
DELETE FROM reward_events
WHERE response_id IN (FROM erased_responses) OR placed_trace_id IN (FROM erased_traces);
DELETE FROM scores WHERE response_id IN (FROM erased_responses);
-- A proposed prompt may quote the rollouts that the model was shown.
DELETE FROM prompts WHERE list_has_any(records, (SELECT coalesce(list(rollout_id), []) FROM erased_rollouts));
