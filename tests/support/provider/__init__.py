"""A provider of models, real and on loopback, that logs what it served: the truth of a recording.

It speaks chat completions, Responses and Anthropic's messages, streamed and not.
"""
