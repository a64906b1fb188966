"""What kind of failure an error is."""

import errno

import pytest

from sparklog.compaction.task import Failure, kind_of
from sparklog.errors import CorruptRecord


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CorruptRecord("bad"), Failure.CORRUPT),
        (FileNotFoundError(errno.ENOENT, "gone"), Failure.GONE),
        (OSError(errno.ESTALE, "stale"), Failure.GONE),
        (MemoryError(), Failure.NO_ROOM),
        (OSError(errno.ENOSPC, "full"), Failure.NO_ROOM),
        (OSError(errno.ENOMEM, "memory"), Failure.NO_ROOM),
        (OSError(errno.EMFILE, "too many"), Failure.NO_ROOM),
        (OSError(errno.EIO, "broken"), Failure.DISK),
    ],
)
def test_kinds(error, kind):
    assert kind_of(error) is kind
