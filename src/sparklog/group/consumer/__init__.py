"""Groups of the consumer protocol (KIP-848): the coordinator itself shares out the partitions.

``machine`` decides what each heartbeat means, ``reconciliation`` how a member gets from what it has to what it shall
have, ``assignors`` what that is; ``classic`` and ``migration`` let members of the classic protocol take part. All of it
is pure: a group is a value, a decision is the next value. ``records`` is what lies between two values, for the log.
"""
