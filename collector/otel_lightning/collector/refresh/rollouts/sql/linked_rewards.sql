-- The rewards for one of these traces that a span of another trace carries.
SELECT reward_id FROM reward_events
WHERE placed_trace_id <> trace_id AND placed_trace_id IN (FROM {rows})
