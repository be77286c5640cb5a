-- Number of choices, among some of them, that are not the only one of their rollout.
SELECT count(*) - count(DISTINCT rollout_id)
FROM (SELECT rollout_id FROM policy_choices LIMIT $most)
