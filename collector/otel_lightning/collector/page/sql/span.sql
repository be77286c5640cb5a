SELECT
    span_id, parent_span_id, name, kind, service_name, scope_name, scope_version, status_code, status_message,
    epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns, epoch_ns(received_at) AS received_ns,
    trace_state, flags,
    left(to_json(map_entries(attributes))::VARCHAR, $most_text) AS attributes,
    left(resource_json, $most_text) AS resource,
    left(to_json(events)::VARCHAR, $most_text) AS events,
    left(to_json(links)::VARCHAR, $most_text) AS links
FROM spans
WHERE trace_id = $trace AND span_id = $span
LIMIT 1
