"""Images, sounds and files in messages, as providers and frameworks spell them."""

from typing import Any

import pytest

from otel_lightning.collector.derive.messages.content_blocks import content_parts
from otel_lightning.collector.derive.messages.one_message import read_message

PNG = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="}
PDF = {"type": "blob", "modality": "document", "mime_type": "application/pdf", "content": "aGk="}
WEB = {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}
IN_URL = "data:image/png;base64,aGk="
ANTHROPIC = {"type": "base64", "media_type": "image/png", "data": "aGk="}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image_url", "image_url": {"url": IN_URL, "detail": "low"}}, PNG),
        ({"type": "input_image", "image_url": IN_URL}, PNG),
        ({"type": "image", "source": ANTHROPIC}, PNG),
        ({"inlineData": {"mimeType": "image/png", "data": "aGk="}}, PNG),
        ({"inline_data": {"mime_type": "image/png", "data": "aGk="}, "text": None}, PNG),
        ({"image": {"format": "png", "source": {"bytes": "aGk="}}}, PNG),
        ({"type": "image", "base64": "aGk=", "mime_type": "image/png"}, PNG),
        ({"type": "image", "image": "aGk=", "mediaType": "image/png"}, PNG),
        ({"type": "document", "source": {**ANTHROPIC, "media_type": "application/pdf"}}, PDF),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk="}}, PDF),
        ({"type": "image_url", "image_url": WEB["uri"]}, WEB),
        ({"type": "image", "source": {"type": "url", "url": WEB["uri"]}}, WEB),
        ({"type": "image", "image": WEB["uri"]}, WEB),
        (
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/a"}},
            {"type": "uri", "modality": "video", "mime_type": "video/mp4", "uri": "gs://b/a"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
            {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "aGk="},
        ),
        (
            {"type": "input_image", "file_id": "file-1"},
            {"type": "file", "modality": "image", "file_id": "file-1"},
        ),
    ],
)
def test_media_of_each_provider_is_a_part_of_the_conventions(
    block: dict[str, Any], part: dict[str, Any]
) -> None:
    assert content_parts([block]) == [part]


@pytest.mark.parametrize(
    "block",
    [
        PNG,
        {"type": "file", "modality": "image", "file_id": "file-1"},
        {"type": "image"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
    ],
)
def test_a_part_of_the_conventions_and_a_block_without_media_are_kept(
    block: dict[str, Any],
) -> None:
    assert content_parts([block]) == [block]


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
    ],
)
def test_a_refusal_is_the_text_of_the_answer(answer: dict[str, Any]) -> None:
    message = {"role": "assistant", "parts": [{"type": "text", "content": "I cannot."}]}
    assert read_message(answer) == [message]
