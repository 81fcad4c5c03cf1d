"""The messages between a child, the server and the process that requested the child.

They go through sockets that keep messages whole (SOCK_SEQPACKET), as do descriptors.
"""

from __future__ import annotations

import array
import socket
import struct

HELLO, EXITED, FAILED = b"H", b"X", b"E"
"""Messages on the socket of a child, with a number each. HELLO, by the child: its pid, with a
descriptor of it. EXITED, by the server: its exit code. FAILED, by either: the error that prevented
its start."""
NUMBER = struct.Struct("q")
CHUNK = 250  # descriptors in a message; the kernel takes 253
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def tell(reply: socket.socket, what: bytes, number: int = 0) -> None:
    """Send a message on the socket of a child; never waits."""
    try:
        reply.send(what + NUMBER.pack(number), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return  # the receiver is gone


def receive_descriptors(source: socket.socket, most: int) -> tuple[bytes, list[int], bool]:
    """Return a message (empty: the other end is gone), its descriptors, and whether some were lost.

    Programs started later do not inherit them, while `socket.recv_fds` ignores its flags in Python
    3.11.
    """
    found = array.array("i")
    size = most * found.itemsize
    message, ancillary, flags, _ = source.recvmsg(32, socket.CMSG_LEN(size), CLOSE_ON_EXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return message, list(found), bool(flags & socket.MSG_CTRUNC)
