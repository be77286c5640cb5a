"""Answers of model calls that other spans and log records tell: their content, reason or error."""
