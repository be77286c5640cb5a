"""Names of the internal tables: the state of the file, and the state of deriving.

`derive/tables.py` names the derived tables.
"""

OF_ONE_FILE = ("schema_migrations", "spool_position", "spool_identity")
"""The schema of a file, and how far it has stored which spool."""
REFRESHING = ("stale", "trace_keys")
"""Traces and log records to derive, and the keys by which traces find each other."""
ROLLOUT_ROWS = "rollout_rows"
"""A row for each rollout, made from derived rows of all of its traces."""
INTERNAL = frozenset({*OF_ONE_FILE, *REFRESHING})
"""Tables without a meaning for users."""
