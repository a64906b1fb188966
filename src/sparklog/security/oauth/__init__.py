"""Tokens of OAuth: where a client gets them, and how a broker verifies them."""
