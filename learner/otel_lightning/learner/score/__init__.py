"""Rewards given to stored rollouts: rules and judges."""
