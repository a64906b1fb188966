"""A table and the log behind it, read as one."""
