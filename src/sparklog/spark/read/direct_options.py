"""Whether tasks may read segment files themselves, and where they find them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from sparklog.client.consumer.fetch.segment_files import MappedFile
from sparklog.spark.options.directories import DirectMode, Mounts


@dataclass(frozen=True)
class DirectOptions:
    """The options ``directRead`` and ``directReadMapping``."""

    mode: DirectMode = DirectMode.AUTO
    mapping: Mounts = ()

    def mapped(self, path: str) -> MappedFile | None:
        """Where a broker's file is on this machine; None if no mapping covers it: then it has the same path here."""
        wanted = PurePosixPath(path)
        for theirs, ours in self.mapping:
            if wanted.is_relative_to(theirs):
                return MappedFile(str(ours / wanted.relative_to(theirs)), str(ours))
        return None
