DELETE FROM promotions
WHERE key = $key AND action = $action AND served_version = $run_id
