"""Log compaction: of each key the last record stays, as Kafka's log cleaner has it.

``plan`` says which part of a log may be cleaned, and which log is next; ``cleaner`` cleans one log's files; ``worker``
is the process in which a broker has that done. What a cleaning promises: ``docs/adr/0026-compaction.md``.
"""
