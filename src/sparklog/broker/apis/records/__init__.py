"""The APIs by which records are written, read, looked up and deleted."""
