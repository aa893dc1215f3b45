"""Two hosts in network namespaces of their own, and a link with a delay and a rate between them.

If the kernel has no netem, two TUN devices and this process are the link: IP packets are read from
one, delayed, and written to the other. TCP is the kernel's own at both ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = "10.77.0.1"
THERE: Final = "10.77.0.2"
_TUNSETIFF: Final = 0x400454CA
#: Packets of IP without a header before them.
_TUN_NO_PI: Final = 0x1001
_MTU: Final = 1500
_BITS_PER_S: Final = 1e9
_IP: Final = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") or "ip"
_INSIDE: Final = "BENCH_NAMESPACE"


def enter_namespace() -> None:
    """Run this program again in a network namespace of its own, if it is in none."""
    if _INSIDE not in os.environ:
        environ = {**os.environ, _INSIDE: "1"}
        command = ["unshare", "--map-root-user", "--net", sys.executable, *sys.argv]
        os.execvpe(command[0], command, environ)  # noqa: S606  # no shell is meant
    subprocess.run([_IP, "link", "set", "lo", "up"], check=True)


class ShapedLink:
    """The link to another namespace, in which a program is started; it ends with this process.

    Attributes:
        delay_s: one way, for packets from now on.
    """

    def __init__(self, program: Sequence[str]) -> None:
        self.delay_s = 0.0
        ours, theirs = socket.socketpair()
        near = _tun(HERE)
        command = ["unshare", "--net", sys.executable, __file__, str(theirs.fileno()), *program]
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        _, (far, *_), _, _ = socket.recv_fds(ours, 1, 1)
        for source, target in ((near, far), (far, near)):
            held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            for work in (self._take, self._give):
                fd = source if work == self._take else target
                threading.Thread(target=work, args=(fd, held), daemon=True).start()

    def _take(self, fd: int, held: SimpleQueue[tuple[float, bytes]]) -> None:
        sent = 0.0
        while True:
            packet = os.read(fd, _MTU)
            sent = max(sent, time.monotonic()) + 8 * len(packet) / _BITS_PER_S
            held.put((sent + self.delay_s, packet))

    def _give(self, fd: int, held: SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, packet = held.get()
            if (early := due - time.monotonic()) > 0:  # to sleep for nothing needs 0.1 ms
                time.sleep(early)
            os.write(fd, packet)


def _tun(address: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH14x", b"asperf0", _TUN_NO_PI))
    subprocess.run([_IP, "address", "add", f"{address}/30", "dev", "asperf0"], check=True)
    subprocess.run([_IP, "link", "set", "dev", "asperf0", "up", "mtu", str(_MTU)], check=True)
    return fd


def main() -> None:
    """In the other namespace: make its end of the link, hand it over, and become the program."""
    handle, *program = sys.argv[1:]
    with socket.socket(fileno=int(handle)) as link:
        socket.send_fds(link, [b"."], [_tun(THERE)])
    os.execvp(program[0], program)  # noqa: S606  # as above


if __name__ == "__main__":
    main()
