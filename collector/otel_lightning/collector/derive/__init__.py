"""From spans and logs to calls, tools, rollouts and rewards. Pure: no DuckDB, no OTLP, no files.

Begin in `assemble.py`: its `derive` shows the whole way. `parse.py` reads each span by itself with
its dialect (`dialects/`, which uses `attributes/`, `messages/` and `text/`) and the rewards that it
carries (`rewards/`); `links.py` finds the keys that traces share; `passes/` complete the rows by
each other. `rows.py` has the types that go in and out, `span_rows.py` and `content_state.py` the
fields that all dialects set alike, and `time_order.py` sorts rows. The collector calls
`batches/batch.py`, which does the same in Arrow tables.
"""
