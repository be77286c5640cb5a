-- Number of rows of each trace in a table, and a checksum that ignores their order.
SELECT coalesce(trace_id, '') AS trace_id, count(*) AS "rows",
    sum(hash(t)::HUGEINT)::VARCHAR AS checksum
FROM $table t WHERE $condition GROUP BY ALL
