-- 1 if no reward was staged, or one of them is not a finite number; else 0.
SELECT (count(*) = 0 OR count(*) > count_if(finite))::INT FROM policy_rewards
