"""RPC servers that are absent, busy, of another protocol, or that did not compute."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pytest_asperf.worker import rpc_remote
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.rpc_remote import Remote, Work
from tests.scripted_rpc import scripted_rpc, served

Serve = Callable[[Callable[[socket.socket], None]], Remote]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server on loopback that treats its clients in some way."""
    with ExitStack() as stack:
        yield lambda treat: Remote(f"127.0.0.1:{stack.enter_context(served(treat))}")


def test_a_server_says_its_version_and_how_fast_its_link_is(serve: Serve) -> None:
    """The protocol's version, its devices, and the speed of small requests and of a tensor."""
    greeting = serve(scripted_rpc()).greet()
    said = [greeting[name] for name in ("protocol", "n_devices", "offers_rdma")]
    assert said == ["7.0.0", 2, False]
    assert 0 < greeting["round_trip_us"] < 1e6
    assert greeting["bandwidth_mbs"] > 0


def test_tensors_of_another_version_are_not_sent(serve: Serve) -> None:
    """The use of them by a server of another layout is unknown: no bandwidth."""
    assert serve(scripted_rpc(8)).greet()["bandwidth_mbs"] is None


def test_a_link_that_changes_bytes_is_named(serve: Serve) -> None:
    """The bytes that are read back must be those that were sent."""
    with pytest.raises(RefusalError, match="other bytes came back"):
        serve(scripted_rpc(loses=1)).greet()


def test_bytes_are_not_counted_where_they_may_go_by_rdma(serve: Serve) -> None:
    """A server that offers RDMA may answer by TCP too."""
    remote = serve(scripted_rpc(caps=bytes(23) + b"x"))
    remote.greet()
    assert remote.work_so_far() == Work(None, None)


@pytest.mark.parametrize(
    ("treat", "said"),
    [
        (lambda client: client.recv(1 << 16) and None, "closed the connection"),
        (lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "another protocol"),
        (lambda client: client.recv(1 << 16) and client.recv(1), "serves another client"),
    ],
)
def test_what_is_no_server_is_named(
    serve: Serve, treat: Callable[[socket.socket], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises before the library connects, which would end the process."""
    monkeypatch.setattr(rpc_remote, "_TIMEOUT_S", 0.2)
    with pytest.raises(RefusalError, match=said):
        serve(treat).greet()


def test_nothing_listens() -> None:
    """The port is closed."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(RefusalError, match="cannot be reached: Connection refused"):
            Remote(f"127.0.0.1:{unused.getsockname()[1]}").greet()


def test_a_program_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program on PATH nothing is started."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusalError, match="no ggml-rpc-server on PATH"):
        Remote("loopback")


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel's counts are Linux's")
def test_bytes_from_the_server_are_counted(serve: Serve) -> None:
    """Bytes over open connections to the server's port count, and nothing else."""
    done = threading.Event()

    def treat(client: socket.socket) -> None:
        client.sendall(bytes(5000))
        done.wait(5)

    remote = serve(treat)
    assert remote.work_so_far() == Work(0, None)
    with socket.create_connection((remote.host, remote.port)) as link:
        link.recv(5000, socket.MSG_WAITALL)
        received = remote.work_so_far().n_bytes
        assert received in {5000, 5001}, "the kernel counts the SYN as a byte"
        before = Work(received - 5000, None)
        remote.require_work(before, 5, 250)
        with pytest.raises(RefusalError, match="5000 bytes came from"):
            remote.require_work(before, 5, 251)
        by_name = Remote(f"localhost:{remote.port}")
        assert by_name.work_so_far().n_bytes == received, "the kernel knows no names"
        done.set()
