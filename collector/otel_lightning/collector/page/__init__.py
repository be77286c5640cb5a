"""The web page on the HTTP port: rollouts of the agents, and results of learning.

Begin in `answer.py`, which gets a request; `process.py` passes it to a process that writes pages.
There `routes.py` finds the view of the path (`views/`), which asks statements of `sql/` and fills a
template of `templates/`.
"""
