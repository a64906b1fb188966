"""Backups of topics, made and restored while clusters run: segments, settings, groups' offsets, consistent at a point.

``making`` makes one, ``verifying`` reads one again, ``restoring`` makes topics of one. They need no Spark. Invariants:
``docs/adr/0034-backup-and-files.md``.
"""
