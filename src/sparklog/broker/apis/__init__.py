"""One module an API, in rooms by what the API is about.

Each names its ``API`` and ``VERSIONS`` and has ``handle(broker, request)``, which returns the response message or
awaits it; it parses nothing, locks nothing and does not know the socket. The two hot ones carry their own ``decode``
and ``encode``.
"""
