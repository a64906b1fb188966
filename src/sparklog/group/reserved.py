"""Groups that have no readers: in each a sink of Spark keeps where the last decision about its batches stands.

Only a commit inside a transaction counts there, which is the sink's own. A plain commit would lead the next start of
the sink to another decision, so it is refused, and so are members, who would commit. Without passwords that is no wall:
a stranger can still commit in a transaction of its own. Deleting such a group is free, for the sink itself deletes
those of the writes that are over.
"""

from __future__ import annotations

from sparklog.errors import ErrorCode

PREFIX = "spark-decisions."


def reserved_error(group_id: str, protects: bool) -> ErrorCode:
    """GROUP_AUTHORIZATION_FAILED for such a group, if ``sparklog.internal.topics.protect`` says so."""
    refused = protects and group_id.startswith(PREFIX)
    return ErrorCode.GROUP_AUTHORIZATION_FAILED if refused else ErrorCode.NONE
