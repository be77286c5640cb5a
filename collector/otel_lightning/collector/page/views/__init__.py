"""The pages, one module each: questions to the store, and values for a template.

`routes.py`, beside this folder, has the path of each.
"""
