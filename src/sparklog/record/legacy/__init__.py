"""The formats before the record batch: read, never written; and the first design's answers to a fetch.

============ =============== ============================================================================
format       Kafka           a log holds
============ =============== ============================================================================
``FIRST``    0.7             messages without offset, key or timestamp (``first_format``)
``MAGIC_0``  0.8, 0.9        entries of offset, size and message with a key (``message_set``)
``MAGIC_1``  0.10            the same with a timestamp
``V2``       0.11 and later  record batches (``sparklog.record.batch``); they may follow older entries
============ =============== ============================================================================

Every message has a CRC-32 of its own (zlib's, not the CRC-32C of record batches). A compressed message is a wrapper:
its value is a whole set of messages, compressed, and those may not be wrappers again.

``segment`` reads a file of any of them, ``columns`` gives them to Arrow, ``message`` is what both hand out;
``fetch_result`` reads and writes the answers in which the first format went over the wire.
"""
