"""Tools that the provider runs itself, and the items of OpenAI's Responses API.

The conventions have `server_tool_call` and `server_tool_call_response` for what the provider ran:
a model that called one did not stop to have a tool called, so these are no `tool_call`.
"""

from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.derive.text.json_text import parse

Part = dict[str, Any]
CALL, RESPONSE = "server_tool_call", "server_tool_call_response"
ITEM = "fc_"
"""Prefix of the ids of the Responses API's own items, which no response to a tool call names."""
CODE = "code_execution"
"""The name of Gemini's tool that runs code."""
_CODE, _RAN = (
    ("executable_code", "executableCode"),
    ("code_execution_result", "codeExecutionResult"),
)
_RESPONSE_KEYS = ("output", "results", "outputs", "result", "content")
_ARGUMENT_KEYS = ("queries", "code", "input", "prompt", "query", "operation")
"""The keys of the arguments in items that have neither `arguments` nor `action`."""


def item_parts(item: Mapping[str, Any]) -> tuple[str, list[Part]] | None:
    """Return the role and the parts of an item of a Responses request or response, if it is one.

    Args:
        item: An item whose type is no message, no reasoning and no plain function call.

    Returns:
        Nothing for an item of another kind. An item with a `call_id` is run by the client, and its
        output comes as an item of its own; any other was run by the provider.

    Example:
        >>> item_parts({"type": "web_search_call", "id": "ws_1", "action": {"query": "q"}})[1][0]
        ... # doctest: +NORMALIZE_WHITESPACE
        {'type': 'server_tool_call', 'id': 'ws_1', 'name': 'web_search',
         'server_tool_call': {'type': 'web_search', 'arguments': {'query': 'q'}}}
    """
    kind = str(item.get("type"))
    if kind.endswith("_call_output") and item.get("call_id"):
        part = {"type": "tool_call_response", "id": item["call_id"]}
        output = item.get("output")
        return "tool", [part if output is None else {**part, "response": output}]
    if not kind.endswith("_call") or not (item.get("call_id") or item.get("id")):
        return None
    # `local_shell_call` is the tool `local_shell`.
    name = item.get("name") or kind.removesuffix("_call").removesuffix("_tool")
    if item.get("call_id"):
        return "assistant", [_client_call(item, str(name))]
    return "assistant", _hosted_call(item, kind.removesuffix("_call"), str(name))


def _client_call(item: Mapping[str, Any], name: str) -> Part:
    part = {"type": "tool_call", "id": str(item["call_id"]), "name": name}
    text = item.get("input")
    if isinstance(text, str):  # a custom tool's: free text, and no JSON
        return {**part, "arguments": {"input": text}, "arguments_raw": text}
    return {**part, "arguments": _arguments(item)}


def _arguments(item: Mapping[str, Any]) -> Any:
    given = item.get("arguments", item.get("action"))
    if isinstance(given, str):
        value = parse(given)
        return given if value is None else value
    if given is not None:
        return given
    return {key: item[key] for key in _ARGUMENT_KEYS if item.get(key) is not None}


def _hosted_call(item: Mapping[str, Any], kind: str, name: str) -> list[Part]:
    body = {"type": kind, "arguments": _arguments(item)}
    parts: list[Part] = [{"type": CALL, "id": str(item["id"]), "name": name, CALL: body}]
    response = next((item[key] for key in _RESPONSE_KEYS if item.get(key) is not None), None)
    error = item.get("error")
    if error is None and item.get("status") == "failed":
        error = "failed"
    if response is not None or error is not None:
        body = {"type": kind, "response": response, "error": error}
        known = {key: value for key, value in body.items() if value is not None}
        parts.append({"type": RESPONSE, "id": str(item["id"]), RESPONSE: known})
    return parts


def block_part(block: Mapping[str, Any]) -> Part | None:
    """Return the part of a block with which Anthropic or Gemini tells of a tool that it ran.

    Example:
        >>> block_part({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})
        {'type': 'server_tool_call', 'id': 's1', 'name': 'web_search', \
'server_tool_call': {'type': 'web_search', 'arguments': {}}}
    """
    kind = str(block.get("type"))
    if (code := _code_part(block)) is not None:
        return code
    if kind in {"server_tool_use", "mcp_tool_use"}:
        body = {"type": str(block.get("name")), "arguments": block.get("input")}
        return {"type": CALL, "id": block.get("id"), "name": block.get("name"), CALL: body}
    if kind.endswith("_tool_result") and block.get("tool_use_id"):
        content = block.get("content")
        failed = block.get("is_error") or (isinstance(content, dict) and "error_code" in content)
        body = {"type": kind.removesuffix("_tool_result"), "response": content}
        body |= {"error": content} if failed else {}
        return {"type": RESPONSE, "id": block["tool_use_id"], RESPONSE: body}
    return None


def _code_part(block: Mapping[str, Any]) -> Part | None:
    """Return the part of code that Gemini wrote and ran, or of what it printed."""
    for name in _CODE:
        if isinstance(code := block.get(name), dict):
            request = {"type": CODE, "arguments": code}
            return {"type": CALL, "id": code.get("id"), "name": CODE, CALL: request}
    for name in _RAN:
        if isinstance(ran := block.get(name), dict):
            output = ran.get("output")
            response = {"type": CODE, "response": output}
            if not str(ran.get("outcome", "OK")).endswith("OK"):
                response["error"] = output
            return {"type": RESPONSE, "id": ran.get("id"), RESPONSE: response}
    return None


def is_hosted(kind: str) -> bool:
    """Return whether a part of this type is of a tool that the provider ran."""
    return kind in {CALL, RESPONSE}
