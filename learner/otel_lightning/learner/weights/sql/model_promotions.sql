SELECT live, action, run_id, gate, before, after, "time"
FROM model_promotions
ORDER BY "time"
