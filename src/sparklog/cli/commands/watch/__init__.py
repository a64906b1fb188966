"""Commands that look on: what is wrong, how fast it is, what goes on."""
