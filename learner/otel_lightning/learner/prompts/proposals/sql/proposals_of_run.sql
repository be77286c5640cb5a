SELECT call, variant, parent, component, text, reason, records, refused FROM prompts WHERE run_id = $run_id ORDER BY call
