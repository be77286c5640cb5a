"""Learn better agents from stored traces, offline, behind a held-out gate."""
