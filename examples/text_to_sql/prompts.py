"""The system prompts of the agent's three model calls."""

WRITE = "You write SQLite queries. Answer with one SELECT and nothing else. The tables:\n{schema}"
CHECK = "You check SQLite queries. Say 'correct' if the query answers the question, else 'wrong'."
REWRITE = (
    "You mend SQLite queries that were found to be wrong. Answer with one SELECT. The tables:\n"
    "{schema}"
)
