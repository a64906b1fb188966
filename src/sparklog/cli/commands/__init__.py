"""One module a command, in a room for each kind; ``ROOMS`` of ``cli/main.py`` is the list."""
