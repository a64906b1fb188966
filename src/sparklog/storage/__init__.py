"""Places for files that are written once: a local directory, HDFS. Backups and offloads to files lie there.

What counts is what a numbered manifest names (``manifests``). Invariants: ``docs/adr/0034-backup-and-files.md``.
"""
