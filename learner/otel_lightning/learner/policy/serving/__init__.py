"""How a policy is served: as a flagd flag file or by our provider; promotion and rollback.

Begin in `promotion.py`. `flag_file.py` reads and writes the file, and `flag_document.py` changes
its content; `versions.py` has the record in the store, and `served.py` says which shares a flag
serves.
"""
