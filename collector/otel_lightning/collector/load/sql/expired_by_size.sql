-- The oldest traces and log records without a trace, until they have this share of all records. Those
-- of a loaded file were received at one time, so of them the earliest ones go first. What was received
-- last stays, however large it is, and so do the traces of `spared`.
CREATE TEMP TABLE expired_records AS
WITH records AS (
    SELECT trace_id, NULL AS log_id, received_at, start_time AS "time" FROM spans UNION ALL
    SELECT trace_id, if(trace_id IS NULL, log_id, NULL), received_at, coalesce("time", observed_time) FROM logs
),
counted AS (
    SELECT trace_id, log_id, count(*) AS records, max(received_at) AS received_at, max("time") AS "time"
    FROM records GROUP BY trace_id, log_id
),
summed AS (
    SELECT
        trace_id, log_id, received_at,
        coalesce(sum(records) OVER before, 0) AS earlier,
        sum(records) OVER () AS total,
        lead(1) OVER oldest_first IS NULL AS is_newest
    FROM counted
    WINDOW
        oldest_first AS (ORDER BY received_at, "time" NULLS FIRST, trace_id, log_id),
        before AS (oldest_first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT trace_id, log_id, received_at FROM summed
WHERE earlier < $share * total AND NOT is_newest AND (trace_id IS NULL OR trace_id NOT IN (FROM spared));
CREATE TEMP TABLE expired AS SELECT trace_id FROM expired_records WHERE trace_id IS NOT NULL;
CREATE TEMP TABLE expired_logs AS SELECT log_id FROM expired_records WHERE log_id IS NOT NULL;
CREATE TEMP TABLE expired_before AS SELECT max(received_at) AS received_at FROM expired_records;
DROP TABLE expired_records
