"""How much a client may have: bytes, time and changes by user and client id. No I/O; time is handed in."""
