-- The rewards that name one of these responses.
SELECT reward_id FROM reward_events WHERE response_id IN (FROM {rows})
