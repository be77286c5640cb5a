"""Addresses to listen on."""

import socket
import sys
from pathlib import Path

import pytest
from support.running import finish

from otel_lightning.collector.serve.address import Address
from otel_lightning.collector.serve.settings import Settings


def test_inherited_socket_is_used_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        address = Address.parse(f"fd://{number}")
        assert str(address) == f"127.0.0.1:{listening.getsockname()[1]}"
        taken = address.bind()
        assert taken.fileno() == number
        taken.detach()


@pytest.mark.parametrize(
    ("family", "kind"),
    [(socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)],
    ids=["unix", "udp"],
)
def test_inherited_socket_of_another_kind_is_refused(
    family: socket.AddressFamily, kind: socket.SocketKind
) -> None:
    with (
        socket.socket(family, kind) as other,
        pytest.raises(ValueError, match="is no TCP socket that was inherited"),
    ):
        Address.parse(f"fd://{other.fileno()}")


def test_grpc_takes_no_inherited_socket(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        grpc = Address.parse(f"fd://{listening.fileno()}")
        settings = Settings(tmp_path / "t.duckdb", grpc, Address.parse("127.0.0.1:0"))
        with pytest.raises(ValueError, match="give --grpc HOST:PORT"):
            settings.check()


@pytest.mark.parametrize("text", ["fd://", "fd://x", "fd://99999"])
def test_file_descriptor_that_is_no_socket_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fd://"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:65536", "127.0.0.1:99999"])
def test_port_that_no_machine_has_is_refused_with_the_ports_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=rf"'{text}' has no port from 0 to 65535"):
        Address.parse(text)


def test_a_name_that_has_only_an_ipv6_address_is_listened_on() -> None:
    name = "ip6-localhost"  # in the hosts file of Debian
    try:
        found = {one[0] for one in socket.getaddrinfo(name, 0)}
    except OSError:
        found = set()
    if found != {socket.AF_INET6}:
        pytest.skip(f"{name} is not such a name here")
    with Address(name, 0).bind() as taken:
        assert taken.family == socket.AF_INET6


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_name_with_addresses_of_both_kinds_is_listened_on_over_ipv4(host: str) -> None:
    with Address(host, 0).bind() as taken:
        assert taken.family == socket.AF_INET


def test_a_machine_without_the_name_localhost_is_told_what_it_lacks(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("")
    resolver = tmp_path / "nsswitch.conf"
    resolver.write_text("hosts: files\n")
    mounted = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
    replaced = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/nsswitch.conf'
    if finish(*mounted, replaced, "sh", hosts, resolver).returncode:
        pytest.skip("files cannot be mounted here")
    serve = ("-m", "otel_lightning.collector", "serve", "--grpc", "none", "--http", "127.0.0.1:0")
    command = (sys.executable, *serve, "--store", tmp_path / "t.duckdb")
    result = finish(
        *mounted, replaced + ' && shift 2 && exec "$@"', "sh", hosts, resolver, *command
    )
    assert result.returncode == 1
    assert "Check that /etc/hosts has the line '127.0.0.1 localhost'" in result.stderr
    assert "Traceback" not in result.stderr
