"""Sockets: the broker's listening end, and the asking ends of clients and brokers."""
