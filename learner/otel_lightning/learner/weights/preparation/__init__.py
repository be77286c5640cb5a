"""Prepare the transitions in tokens for an algorithm: checks, baselines, logprobs, pairs."""
