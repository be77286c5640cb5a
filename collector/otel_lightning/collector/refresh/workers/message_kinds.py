"""Kinds of messages (`process/child.py`) between the process that holds the store and a worker.

Arrow data is an IPC stream; before a table's schema or rows comes a message with the table's name.
"""

NAME, SCHEMA, BEGIN, LOGS, SPANS, END, TABLES = range(7)
"""To a worker: the name of a table and its schema; a new batch; the log records of some traces,
then their spans in parts, then the end of them; the request for the rows of the batch."""
READY, KEYS, ROWS, DONE, FAILED = range(10, 15)
"""From a worker: that it has started; the keys of the traces that were read; some rows of a table;
the end of the rows, with JSON about the batch; the text of an error."""
