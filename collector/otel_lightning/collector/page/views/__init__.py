"""The pages, one module each: questions to the store, and values for a template."""
