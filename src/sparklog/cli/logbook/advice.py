"""What the advice for many lines has in common; links are those of a page of ``docs/``."""

from __future__ import annotations

SAID = "As the line says."
"""For a line that says itself what to do."""
NOTHING = "Nothing."
AGAIN = "Nothing, where it stops within a minute: it is tried again."
NAMED = f"{AGAIN} Where it goes on, see to what the reason names."
PEER = f"{AGAIN} Where it goes on, see whether the broker that it names runs and is reached from here."
BUG = "A mistake of sparklog's: report it, with the traceback that follows. The broker goes on."
BUG_OF_CLIENT = "A mistake of sparklog's: report it, with the traceback that follows."
ZNODE = (
    "Something wrote into ZooKeeper what cannot be read there. Set it anew by the command for it,"
    " or mend the znode that the reason names."
)
DISK = (
    "See to the disk that the reason names: [a disk has failed](runbook.md#a-disk-has-failed), [a"
    " disk is full](runbook.md#a-disk-is-full)."
)
DAMAGE = "See [a segment is damaged](runbook.md#a-segment-is-damaged)."
ZOOKEEPER = "See [ZooKeeper is lost](runbook.md#zookeeper-is-lost)."
CUT = (
    "Nothing where another replica has these records: they are copied from there. Of an only"
    " replica they are gone, unless the log names a file in which they are kept."
)
LEFT = "Nothing: the next one removes it. Where the disk refuses that too, see to the disk."
TASKS = "Nothing, where it stops: the task is run again. Where it goes on, the reason says what the brokers refuse."
