"""What a shell reports of a program that a signal ended: 128, and the signal's number."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""By SIGINT."""
BROKEN_PIPE: Final = 141
"""By SIGPIPE."""
