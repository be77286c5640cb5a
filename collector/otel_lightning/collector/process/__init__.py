"""This process and its children: memory, cores, imports, threads, connections.

`child.py` is for processes that answer over a pipe: workers, readers, page processes.
"""
