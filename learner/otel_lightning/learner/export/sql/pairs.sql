-- Pairs of a better and a worse answer in one state: the best with the worst, the second best with
-- the second worst, and so on, while their advantages differ by more than $threshold. An answer
-- that was given several times has its mean advantage, so that no answer is both chosen and
-- rejected. Means that differ only by rounding count as equal. Calls whose messages are incomplete,
-- and answers that were cut off, are in no pair.
WITH graded AS (
    SELECT
        transitions.state_hash,
        -- Without the ids of tool calls, which providers invent.
        md5(list_transform(
            (completion -> '$[0].parts')::JSON[], lambda part: json_merge_patch(part, '{"id": null}')
        )::VARCHAR) AS answer_hash,
        avg(advantage) AS advantage,
        min(task_id) AS task_id,
        min({'trace_id': trace_id, 'span_id': span_id}) AS call
    FROM transitions
    JOIN llm_calls c USING (trace_id, span_id)
    WHERE split IN $splits AND transitions.state_hash IS NOT NULL AND completion IS NOT NULL
        AND coalesce(c.content NOT IN $incomplete, TRUE)
        AND coalesce(c.finish_reason NOT IN $cut_off, TRUE)
    GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY state_hash ORDER BY advantage DESC, answer_hash) AS best,
        row_number() OVER (PARTITION BY state_hash ORDER BY advantage, answer_hash DESC) AS worst
    FROM graded
)
SELECT
    better.task_id,
    better.advantage - worse.advantage AS margin,
    chosen.input_messages::VARCHAR AS messages,
    chosen.tool_definitions::VARCHAR AS tools,
    chosen.content,
    chosen.output_messages::VARCHAR AS chosen,
    rejected.output_messages::VARCHAR AS rejected
FROM ranked better
JOIN ranked worse
    ON better.state_hash = worse.state_hash AND better.best = worse.worst
    AND better.advantage - worse.advantage > greatest(
        $threshold, 1e-12 * greatest(abs(better.advantage), abs(worse.advantage))
    )
JOIN llm_calls chosen
    ON chosen.trace_id = better.call.trace_id AND chosen.span_id = better.call.span_id
JOIN llm_calls rejected
    ON rejected.trace_id = worse.call.trace_id AND rejected.span_id = worse.call.span_id
ORDER BY better.state_hash, better.best
