"""One partition on disk, and the directories that hold many; Kafka 3.9's layout, byte for byte.

Single writer: a log is appended to, rolled and truncated by one thread. What is durable when: bytes are in the page
cache when ``append`` returns, on the disk when ``flush`` returns. What is visible when: never in this package's hands;
a reader passes the bound (high watermark, last stable offset) up to which it may see.
"""
