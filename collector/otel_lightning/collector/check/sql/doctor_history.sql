-- Calls with an incomplete input: the provider keeps a part of the history, or the text was cut.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM llm_calls) AS total,
    min('span ' || span_id || ' of trace ' || trace_id) AS example,
    NULL::VARCHAR AS kind
FROM llm_calls
WHERE content = 'truncated' AND error_type IS NULL
HAVING count(*) > 0
