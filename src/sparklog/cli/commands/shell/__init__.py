"""Commands for the shell in which one types."""
