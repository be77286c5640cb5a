"""Keep the derived tables current: find changed traces, derive them, write their rows."""
