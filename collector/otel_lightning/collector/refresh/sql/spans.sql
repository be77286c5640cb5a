-- The spans of the traces of `chosen`. Filtered by row id, DuckDB skips blocks without any of them.
-- The columns are in the order of the fields of `rows.Span`.
SELECT trace_id, span_id, parent_span_id, name, kind, epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns, status_code, status_message, scope_name, scope_version,
    coalesce(resource_json, '{}') AS resource, attributes,
    list_transform(events, lambda e: {'name': e.name, 'time_ns': epoch_ns(e."time"),
        'attributes': e.attributes}) AS events,
    list_transform(links, lambda l: l.trace_id) AS links
FROM $table
WHERE rowid IN (SELECT rowid FROM $table WHERE $received AND trace_id IN (FROM chosen))
