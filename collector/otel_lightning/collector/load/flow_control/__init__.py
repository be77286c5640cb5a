"""How fast senders may send, and how storing and deriving share the loader's time.

`lag.py` measures how late rows come and raises the alarm. `pacing.py` computes from it how long
senders wait, and `scheduling.py` whether the loader stores or derives next.
"""
