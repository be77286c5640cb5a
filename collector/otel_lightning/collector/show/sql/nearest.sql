SELECT rollout_id
FROM rollout_rows
ORDER BY jaro_winkler_similarity(rollout_id, $asked) DESC, start_time DESC, rollout_id
LIMIT $most
