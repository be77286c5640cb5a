"""The givers of rewards, as the column `source` of rewards and scores names them."""

RULE, JUDGE = "rule:", "judge:"
"""Prefixes of the source of scores; the source of a received reward begins with neither."""
GIVEN_LATER = f"coalesce(starts_with(source, '{RULE}') OR starts_with(source, '{JUDGE}'), FALSE)"
"""SQL condition: a rule or a judge gave the reward after the rollout."""
