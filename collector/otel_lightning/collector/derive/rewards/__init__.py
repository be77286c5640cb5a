"""Rewards and arms that single spans and log records carry.

Begin in `rewards_and_arms.py`, which reads OpenTelemetry's events and Agent Lightning's spans;
`vendor_rewards.py` reads the attributes in which each vendor writes its scores.
"""
