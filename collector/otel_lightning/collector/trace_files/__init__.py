"""Files of traces: OTLP, and what other trace stores export.

`read.py` reads a file and detects what it holds. `formats/` has one file for each other store, and
`records.py` what these return.
"""
