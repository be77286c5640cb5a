"""The web page on the HTTP port: rollouts of the agents, and results of learning.

Begin in `answer.py`, which gets a request. In the receiving process, `browser_access.py`,
`sessions.py` and `link.py` decide who may read, `live.py` signals news, and `process.py` passes a
request to a process that writes pages. There `child.py` takes it, and `routes.py` finds the view of
the path (`views/`). A view asks statements of `sql/` (`view_request.py`, `statements.py`) and fills
a template of `templates/`; `text.py`, `conversation.py`, `plots.py` and `advantage_terms.py`
prepare its values.
"""
