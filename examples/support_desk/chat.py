"""The chat template of the support desk's model.

Each role is one token, so a message always begins on a token of its own: the ids that were
sampled are the ids that a later prompt holds.
"""

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

CHAT_TEMPLATE = """\
{%- if tools %}<|tools|>
{%- for tool in tools %}{{ tool.function.name }} {% endfor %}<|end|>
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|assistant|>
{%- generation %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", \
"arguments": {% if call.function.arguments is string %}{{ call.function.arguments }}\
{% else %}{{ call.function.arguments | tojson }}{% endif %}}</tool_call>
{%- endfor %}<|end|>{% endgeneration %}
{%- else %}<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
