"""How long one client holds up another: a table of the worst that may be asked of each API, and what measures it."""
