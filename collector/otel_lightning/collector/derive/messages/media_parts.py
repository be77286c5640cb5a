"""Images, sounds and files in a message: the conventions' parts `blob`, `uri` and `file`.

OpenAI, Anthropic, Gemini, Bedrock and LangChain nest the same few facts in different objects, so
they are looked for in the block and in the objects inside it.
"""

from collections.abc import Mapping
from typing import Any

Part = dict[str, Any]

MODALITIES = ("image", "audio", "video")
"""The conventions' modalities; the type of a block names one, else its MIME type does."""
UNTYPED = ("inlineData", "inline_data", "fileData", "file_data", *MODALITIES, "document")
"""The keys of Gemini's and Bedrock's blocks, which have no type."""
KINDS = frozenset({
    *UNTYPED, "file", "media", "input_file", "input_image", "input_audio",
    *(f"{modality}{end}" for modality in MODALITIES for end in ("_url", "-url")),
})  # fmt: skip
"""The types of blocks that hold media."""
_INSIDE = ("source", "bytes", "s3Location")
"""The keys of objects inside a block that may hold the facts; its own type is another."""
_URIS = ("url", "uri", "file_uri", "fileUri", "file_url", "image_url")
_DATA = ("data", "bytes", "base64", "file_data", "image")
_IDS = ("file_id", "fileId")
_TYPES = ("media_type", "mime_type", "mimeType", "mediaType")
_EMBEDDED = ";base64,"


def media_part(kind: str, block: Mapping[str, Any]) -> Part:
    """Return the part of a block of media; the block itself if it has neither data nor a place.

    Args:
        kind: The type of the block, one of `KINDS`.
        block: The block.

    Example:
        >>> media_part("image", {"source": {"media_type": "image/png", "data": "iVBO"}})
        {'type': 'blob', 'modality': 'image', 'mime_type': 'image/png', 'content': 'iVBO'}
    """
    facts = {} if "modality" in block else _facts(kind, block)
    carried = _carried(facts)
    if carried is None:
        return {**block, "type": kind}
    form, key, value = carried
    modality = next((one for one in MODALITIES if one in kind), None)
    mime_type = _mime_type(facts, modality)
    head, inside, data = value.partition(_EMBEDDED)
    if inside:
        # A URL may hold the data itself, such as `data:image/png;base64,iVBOR…`.
        form, key, value, mime_type = "blob", "content", data, head.removeprefix("data:")
    of_type = (mime_type or "").partition("/")[0]
    modality = modality or (of_type if of_type in MODALITIES else "document")
    typed = {"mime_type": mime_type} if mime_type else {}
    return {"type": form, "modality": modality, **typed, key: value}


def _carried(facts: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the type of a part, its key and its value: the data, their place or their id."""
    if facts.get("type") == "text":  # the text of a document is no base64
        return None
    if uri := _first(facts, _URIS):
        return "uri", "uri", uri
    if data := _first(facts, _DATA):  # the AI SDK has URLs where others have data
        is_url = data.startswith(("http://", "https://"))
        return ("uri", "uri", data) if is_url else ("blob", "content", data)
    file_id = _first(facts, _IDS)
    return ("file", "file_id", file_id) if file_id else None


def _mime_type(facts: Mapping[str, Any], modality: str | None) -> str | None:
    """Return the MIME type; OpenAI's sounds and Bedrock's images state its second half only."""
    stated, half = _first(facts, _TYPES), facts.get("format")
    return f"{modality}/{half}" if stated is None and modality and half else stated


def _facts(kind: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a block and of the objects in it; the innermost ones count most."""
    facts = {**block}
    for key in (kind, kind.removeprefix("input_"), *_INSIDE):
        if isinstance(inner := facts.get(key), dict):
            del facts[key]
            facts.update(inner)
        elif key.endswith("url") and isinstance(inner, str):
            facts.setdefault("url", inner)
    return facts


def _first(facts: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((one for key in keys if isinstance(one := facts.get(key), str) and one), None)
