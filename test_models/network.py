"""The network closed: while it is, no socket of the internet is made, and whoever tries is told so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class NetworkError(AssertionError):
    """A test made a socket of the internet, and does not say that it needs one."""


@contextmanager
def closed_network() -> Iterator[None]:
    """Refuse sockets of the internet; pipes and sockets of this machine's own files stay."""
    made = socket.socket.__init__
    looked_up = socket.getaddrinfo

    def refuse(found: str) -> None:
        raise NetworkError(
            f"expected no use of the network, found {found}; mark the test with network where it needs it"
        )

    def init(self: socket.socket, family: int = -1, *args: object, **kwargs: object) -> None:
        if kwargs.get("fileno") is None and family in (-1, socket.AF_INET, socket.AF_INET6):
            refuse("a socket of the internet")
        made(self, family, *args, **kwargs)  # type: ignore[arg-type]

    def lookup(host: object, *_: object, **__: object) -> None:
        refuse(f"a look-up of {host!r}")

    socket.socket.__init__ = init  # type: ignore[method-assign]
    socket.getaddrinfo = lookup  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.socket.__init__ = made  # type: ignore[method-assign]
        socket.getaddrinfo = looked_up
