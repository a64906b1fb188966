"""A handshake in memory: both ends of TLS, and no socket."""

import ssl


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """The server's end of a connection. Raises what either end raised, the client's first."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            break
    assert not waiting
    ends[1].write(b"served")  # in TLS 1.3 a client has shaken hands before the server has looked at its certificate
    assert ends[0].read() == b"served"
    return ends[1]
