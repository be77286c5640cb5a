SELECT variant, text_hash, text FROM prompts WHERE key = $key ORDER BY created, run_id, call
