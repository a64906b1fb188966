"""The wire: bytes in, values out, and back. No socket, no clock; record data stays opaque here."""
