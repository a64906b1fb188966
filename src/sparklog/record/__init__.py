"""The record batch format v2 (magic 2): bytes in, bytes or Arrow columns out; no socket, no file, no clock."""
