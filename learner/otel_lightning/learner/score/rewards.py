"""Facts about rewards that all of the learner shares: the largest one, and who gave them."""

HUGE = 1e60
"""Largest absolute reward: the fourth powers of larger ones are no finite numbers."""
RULE, JUDGE = "rule:", "judge:"
"""Prefixes of the column `source` of rewards and scores that rules and judges gave. The source of a
received reward begins with neither."""
GIVEN_LATER = f"coalesce(starts_with(source, '{RULE}') OR starts_with(source, '{JUDGE}'), FALSE)"
"""SQL condition: a rule or a judge gave the reward after the rollout."""
