"""What Python raises where no connection can be made to an address."""

from __future__ import annotations

from typing import Final

UNREACHABLE: Final = (OSError, ValueError, OverflowError)
"""The network's failures, and those of an address that cannot be one: a name that IDNA cannot encode (UnicodeError, a
ValueError), one with a NUL, a port out of range. A broker may advertise any."""
