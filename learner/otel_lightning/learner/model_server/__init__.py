"""A small server of one model for OpenAI clients, for tests, examples and evaluation by running."""
