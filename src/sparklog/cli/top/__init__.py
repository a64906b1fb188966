"""What goes on in a cluster now: two samples of it, and what happened between them.

Rates come from offsets (records), from the sizes of logs (bytes as they are stored) and from what groups commit
(records read). So they need nothing of a broker but its protocol, and a consumer without a group is not seen.
"""
