"""From the spool into the tables `spans` and `logs`: decoding, duplicates, limits, retention.

Begin in `loader.py`, the thread that does it. `batches.py` is one transaction of it: `decoding/`
reads OTLP, `dead_letters.py` keeps what cannot be stored, and `resume.py` the position in the
spool. `deriving.py` decides when the thread derives, and `failures.py` turns errors into alarms.
`flow_control/` slows senders to the rate at which rows are stored and derived.
`from_files.py` loads files without a thread. `position.py` tells clients how far the spool is
stored.
"""
