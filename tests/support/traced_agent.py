"""Agents of a few lines that send the span of their model call by hand, so that they start fast."""

TRACING = """
import urllib.request
def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(),
        {'Content-Type': 'application/json'})
    return json.loads(urllib.request.urlopen(request, timeout=30).read())
def value(x):
    return {'intValue': str(x)} if isinstance(x, int) else {'stringValue': str(x)}
def trace(question, text, finish, tokens, temperature):
    message = {'role': 'assistant', 'parts': [{'type': 'text', 'content': text}]}
    attributes = {'gen_ai.operation.name': 'chat', 'gen_ai.request.model': 'm',
        'gen_ai.request.temperature': temperature,
        'lightning.rollout.id': os.environ['LIGHTNING_ROLLOUT_ID'],
        'lightning.task.id': os.environ['LIGHTNING_TASK_ID'],
        'gen_ai.input.messages': json.dumps(
            [{'role': 'user', 'parts': [{'type': 'text', 'content': question}]}]),
        'gen_ai.output.messages': json.dumps([message | {'finish_reason': finish}]),
        'gen_ai.response.finish_reasons': finish,
        'gen_ai.usage.output_tokens': tokens}
    now = time.time_ns()
    span = {'traceId': os.urandom(16).hex(), 'spanId': os.urandom(8).hex(), 'name': 'chat',
        'kind': 3, 'startTimeUnixNano': str(now - 1000), 'endTimeUnixNano': str(now),
        'attributes': [{'key': k, 'value': value(v)} for k, v in attributes.items()]}
    post(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] + '/v1/traces',
        {'resourceSpans': [{'scopeSpans': [{'spans': [span]}]}]})
"""
"""Defines `post(url, body)`, and `trace(…)`, which sends a span as OTLP JSON."""

ASKING = f"""{TRACING}
temperature = 0 if 'LIGHTNING_POLICY' in os.environ else 1
said = post(os.environ['OPENAI_BASE_URL'] + '/chat/completions',
    {{'q': task['question'], 'temperature': temperature}})
trace(task['question'], said['text'], said['finish'], said['tokens'], temperature)
print(said['text'])
"""
"""Asks the model at OPENAI_BASE_URL the task's question."""

ANSWERING = f"""{TRACING}
trace(task['question'], task['question'], 'stop', 5, 1)
print(task['question'])
"""
"""Answers each question with itself."""

CHATTING = f"""{TRACING}
messages = [{{'role': 'user', 'content': task['question']}}]
said = post(os.environ['OPENAI_BASE_URL'] + '/chat/completions',
    {{'model': task['model'], 'messages': messages, 'max_tokens': 4}})
choice = said['choices'][0]
text = choice['message']['content']
trace(task['question'], text, choice['finish_reason'], said['usage']['completion_tokens'], 1)
print(text)
"""
"""Asks a server of OpenAI's API at OPENAI_BASE_URL the task's question."""
