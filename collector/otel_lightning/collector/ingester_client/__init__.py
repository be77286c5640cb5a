"""Requests to the ingester that serves a store, for commands that do not open the store."""
