-- The spans of `$table` that meet the condition `$condition`; all of them meet `$received` too.
-- Filtered by row id, DuckDB skips blocks without any of them. It compares each block of 2,048 rows
-- with each of up to 5,000 ids, so `$received` stands outside too: it skips the blocks of older spans
-- before that, and reading new spans costs the same in a store of any size.
-- The columns are in the order of the fields of `rows.Span`.
SELECT trace_id, span_id, parent_span_id, name, kind, epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns, status_code, status_message, scope_name,
    coalesce(resource_json, '{}') AS resource, attributes,
    list_transform(events, lambda e: {'name': e.name, 'time_ns': epoch_ns(e."time"),
        'attributes': e.attributes}) AS events,
    list_transform(links, lambda l: {'trace_id': l.trace_id, 'span_id': l.span_id}) AS links
FROM $table
WHERE $received
    AND rowid IN (SELECT rowid FROM $table WHERE $received AND $condition)
