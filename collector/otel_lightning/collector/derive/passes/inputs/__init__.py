"""Inputs of model calls that their own spans lack or abridge, completed from other spans."""
