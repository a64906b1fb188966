"""Why an address cannot be listened on, and what to do: the same words for every port."""

from __future__ import annotations

import errno
import os


def remedy(host: str, error: OSError) -> str:
    """What follows after "cannot listen on HOST:PORT: ". The system's own word, for libraries add the address to it."""
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose one that is, and advertise the other"
    is_of_system = error.errno is not None and error.errno in errno.errorcode
    told = os.strerror(error.errno or 0) if is_of_system else error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return f"{told}; stop what holds it, or choose another port"
    return f"{told}; choose another address or port"
