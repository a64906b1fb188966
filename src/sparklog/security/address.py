"""One text for each address, however it was written: by a socket, by people, or by Java.

Java writes all eight groups of an IPv6 address (``0:0:0:0:0:0:0:1``), and lists in ZooKeeper that Kafka's brokers obey
have them so. A socket that listens for IPv4 too gives an IPv4 peer as ``::ffff:10.0.0.1``, which is ``10.0.0.1``.
"""

from __future__ import annotations

import ipaddress


def plain_address(text: str) -> str | None:
    """The address as connections come from it; None where it is no address but perhaps a host's name."""
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)
