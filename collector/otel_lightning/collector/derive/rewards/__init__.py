"""Rewards and arms that single spans and log records carry, in the forms of each vendor."""
