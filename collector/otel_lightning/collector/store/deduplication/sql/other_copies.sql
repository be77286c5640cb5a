-- What each span of a batch that differs from the stored span with its ids is:
-- * `later`: a later state of the same span, which takes its place;
-- * `earlier`: an earlier state of it, which is not needed;
-- * `other`: another span.
-- A span that is sent while it runs has no end time, or the time of its start. Copies of one span have
-- one start time, and grow: of two, the one that ended later is the later one and, while it runs, the
-- one with more attributes and events. So the order in which they came does not matter.
WITH stored AS (
    SELECT trace_id, span_id, start_time, end_time, len(events) AS events, cardinality(attributes) AS attributes
    FROM spans
    WHERE start_time BETWEEN make_timestamp_ns($low) AND make_timestamp_ns($high)
),
compared AS (
    SELECT
        b.position, b.trace_id, b.span_id,
        greatest(b.end_time, b.start_time) AS ends,
        greatest(t.end_time, t.start_time) AS ended,
        if(ends > b.start_time, 0, coalesce(len(b.events), 0) + cardinality(b.attributes)) AS size,
        if(ended > t.start_time, 0, coalesce(t.events, 0) + t.attributes) AS stored_size,
        CASE
            WHEN t.span_id IS NULL THEN 'other'
            WHEN ends > ended OR (ends = ended AND size > stored_size) THEN 'later'
            WHEN ends < ended OR ends = b.start_time THEN 'earlier'
            ELSE 'other'
        END AS kind
    FROM {rows} b
    LEFT JOIN stored t
        ON t.trace_id = b.trace_id AND t.span_id = b.span_id AND t.start_time = b.start_time
)
SELECT
    position,
    -- Of several later states in one batch only the last is stored.
    if(kind = 'later' AND row_number() OVER (
        PARTITION BY trace_id, span_id, kind ORDER BY ends DESC, size DESC, position
    ) > 1, 'earlier', kind) AS kind
FROM compared
ORDER BY position
