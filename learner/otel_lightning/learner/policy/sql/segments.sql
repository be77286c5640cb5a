SELECT rollout_id, CAST(($by) AS VARCHAR) AS segment FROM rollouts LIMIT $at_most
