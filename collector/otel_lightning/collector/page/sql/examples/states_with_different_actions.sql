SELECT c.state_hash, count(*) AS visits, min(t.return_to_go) AS least,
    max(t.return_to_go) AS most
FROM transition_rows t JOIN llm_calls c USING (trace_id, span_id)
GROUP BY ALL HAVING visits > 1 ORDER BY most - least DESC LIMIT 50
