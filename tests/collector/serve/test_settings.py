"""Addresses to listen on."""

import socket

import pytest

from otel_lightning.collector.serve.settings import Address


def test_inherited_socket_is_used_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        address = Address.parse(f"fd://{number}")
        assert str(address) == f"127.0.0.1:{listening.getsockname()[1]}"
        taken = address.bind()
        assert taken.fileno() == number
        taken.detach()


@pytest.mark.parametrize("text", ["fd://", "fd://x", "fd://99999"])
def test_file_descriptor_that_is_no_socket_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fd://"):
        Address.parse(text)
