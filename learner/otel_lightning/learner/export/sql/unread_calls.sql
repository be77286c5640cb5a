-- Calls of some splits of which no row is made, by the reason. Calls with incomplete messages,
-- and answers that were cut off, are in no pair; a prompt needs one call with complete messages.
SELECT
    CASE
        WHEN c.state_hash IS NULL OR ($pairs AND c.output_messages IS NULL) THEN $no_text
        WHEN $pairs AND c.finish_reason IN $cut_off
            THEN printf('an answer that was cut off (%s)', c.finish_reason)
        ELSE printf('incomplete messages (%s)', c.content)
    END AS reason,
    count(*) AS calls
FROM transition_rows t
JOIN llm_calls c USING (trace_id, span_id)
WHERE t.split IN $splits
    AND (c.state_hash IS NULL OR $pairs AND (
        c.output_messages IS NULL OR c.content IN $incomplete OR c.finish_reason IN $cut_off
    ))
GROUP BY ALL
ORDER BY ALL
