"""Maintenance of a whole store: copy it, back it up, erase traces from it, set its prices."""
