"""SASL (RFC 4422): the mechanisms, each a conversation of tokens without a socket."""
