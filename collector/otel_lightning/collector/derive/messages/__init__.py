"""Messages of model calls in one form for all dialects: OpenTelemetry's GenAI conventions.

Begin in `messages.py`, which reads histories. `one_message.py` converts a message of any provider,
`content_blocks.py` the blocks in it; `payloads.py` reads whole requests and responses, and
`token_counts.py` their usage. `langchain_results.py`, `openai_agents_responses.py` and
`pydantic_ai_messages.py` read forms that several tracers record as they are.
"""
