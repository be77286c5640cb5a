DELETE FROM policies WHERE version = $run_id;
DELETE FROM runs WHERE run_id = $run_id;
DELETE FROM promotions WHERE served_version = $run_id
