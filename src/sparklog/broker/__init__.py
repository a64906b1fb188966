"""The broker: one process, one id, one event loop. Assembly of the packages below, and one module an API."""
