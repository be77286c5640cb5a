"""The chat template of the support desk's model.

Each role is one token, so a message always begins on a token of its own: the ids that were
sampled are the ids that a later prompt holds.
"""

from pathlib import Path

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHAT_TEMPLATE = (Path(__file__).parents[1] / "shared" / "chat_template.jinja").read_text("utf-8")
