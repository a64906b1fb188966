"""Access control lists as Kafka 3.9's ``AclAuthorizer`` keeps and decides them. Nothing here does any I/O.

- A list is the set of entries of one resource pattern (``entry.py``, ``pattern.py``); Kafka keeps each in a znode of
  its own (``znode.py``).
- A snapshot is all lists as they were at one moment. It never changes; what it says is found without going through it
  (``snapshot.py``).
- The authorizer asks the snapshot that is in force. What follows the lists gives it the next one
  (``authorizer.py``).

What decides, in this order: a super user may do everything; an entry that denies the operation, or all of them, counts
before any that allows; an entry that allows it, or another one that implies it, suffices; where there is no entry for
the resource at all, whoever asks and whatever they ask, ``allow.everyone.if.no.acl.found`` decides.
"""
