"""What the page asks the server for: a module for each of its parts, each with its ``ROUTES``.

``server.py`` has the list of them.
"""
