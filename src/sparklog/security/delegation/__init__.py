"""Delegation tokens (KIP-48): what a client is given in place of a password."""
