"""Keep the derived tables current: find changed traces, derive them, write their rows.

Begin in `refresher.py`, which the loader calls. It derives in this process (`refresh.py`) or in
several others (`workers/`, with the batches in `sent_batches.py`). Both ways pick the traces by
`closed_set/`, hand their spans to `derive/batches`, and write the rows (`write_rows.py`); then
`rollouts/` brings the rows of rollouts up to date. `time_ranges/` keeps the searches in large
tables short. Log records without a trace are derived by themselves (`logs_without_trace.py`).
"""
