-- The choices for one flag as they are recorded: right if no rollout has two. Nothing is copied.
CREATE OR REPLACE TEMP VIEW policy_choices AS
SELECT rollout_id, arm, propensity, policy_version, "time", FALSE AS switched
FROM logged_choices
