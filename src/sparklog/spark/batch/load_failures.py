"""What an error of Spark's means for a load: the source, a value in it, the machines, or Spark itself.

Spark has a class for few of these; most are told apart by their conditions, or by the classes of Java in the text.
"""

from __future__ import annotations

import re

from sparklog.spark.batch.sources import Source
from sparklog.spark.failures import text_of, words_of

_MEANINGS = (
    (r"stopped SparkContext|SparkContext was shut down|LiveListenerBus is stopped", "Spark has stopped"),
    (r"No space left on device", "a disk that Spark uses is full"),
    (
        r"Python worker exited unexpectedly|ExecutorLostFailure|OutOfMemoryError|MemoryError",
        "a process of Spark's died, as it does where memory is short",
    ),
    (r"\[SPARKLOG_INVALID_PARTITION\]", "a row of {path} names no partition of the topic"),
    (r"\[PATH_NOT_FOUND\]|\[FAILED_READ_FILE\.FILE_NOT_EXIST\]", "{path} is not there"),
    (r"\[UNABLE_TO_INFER_SCHEMA\]", "{path} has no files of the format {format}"),
    (r"\[DATA_SOURCE_NOT_FOUND\]", "Spark lacks what reads {format}"),
    (r"\[FAILED_READ_FILE|\[MALFORMED_|\[CANNOT_PARSE_|\[DELTA_", "{path} cannot be read as {format}"),
    (r"\[CAST_|_OVERFLOW|OUT_OF_RANGE|\[CANNOT_", "a value of {path} has not the type that is wanted"),
    (
        r"UnsupportedFileSystemException|java\.net\.\w+Exception|AccessControlException|AccessDeniedException",
        "{path} cannot be reached",
    ),
    (r"\[UNRESOLVED_|\[DATATYPE_MISMATCH|\[UNSUPPORTED_", "the columns of {path} do not suit"),
)
"""The first that is found says what failed: where a process died, the file that it read is named too."""


def meaning_of(error: Exception, source: Source) -> str:
    """What failed, and Spark's words."""
    text = text_of(error)
    said = next((said for pattern, said in _MEANINGS if re.search(pattern, text)), "Spark failed")
    return f"{said.format(path=source.path, format=source.format)}, and nothing of it is loaded: {words_of(error)}"
