-- Traces chosen at random, and as many of those without derived rows and without a mark that they
-- are to be derived, first those with a span of a model call: one may have lost its mark in a crash.
(SELECT trace_id FROM (SELECT DISTINCT trace_id FROM spans) ORDER BY random() LIMIT $sample)
UNION
(
    SELECT trace_id
    FROM spans
    ANTI JOIN llm_calls USING (trace_id)
    ANTI JOIN trace_keys USING (trace_id)
    ANTI JOIN (SELECT id AS trace_id FROM stale WHERE kind = 'trace') USING (trace_id)
    GROUP BY trace_id
    ORDER BY count("gen_ai.operation.name") = 0, random()
    LIMIT $sample
)
