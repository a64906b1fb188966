"""TLS by Kafka's ``ssl.*`` settings: the contexts of both ends, and whose a certificate is.

``settings`` is what was said, ``contexts`` makes an ``ssl.SSLContext`` of it for a client or a server. A context is
made of the files as they are then. To replace certificates make another context of the same settings: the next
handshakes use it, and connections that are open keep theirs.
"""
