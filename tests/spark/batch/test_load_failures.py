"""What a load says of an error of Spark's (the texts are Spark 4.2's own, shortened), and of its own commit."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.batch import load
from sparklog.spark.batch.load_failures import meaning_of
from sparklog.spark.batch.sources import Source

SOURCE = Source("/data/clicks", "json")
JOB_ABORTED = (
    "An error occurred while calling o769.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage"
    " failure: Task 1 in stage 25.0 failed 1 times, most recent failure: Lost task 1.0 in stage 25.0 (TID 24): "
)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: file:/data/clicks. SQLSTATE: 42K03", "/data/clicks is not there"),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///data/clicks/a.json.",
            "/data/clicks is not there",
        ),
        (
            "[UNABLE_TO_INFER_SCHEMA] Unable to infer schema for JSON. It must be specified manually. SQLSTATE: 42KD9",
            "/data/clicks has no files of the format json",
        ),
        (
            "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing.",
            "/data/clicks cannot be read as json",
        ),
        (
            '[CAST_INVALID_INPUT] The value \'yesterday\' of the type "STRING" cannot be cast to "INT"',
            "a value of /data/clicks has not the type that is wanted",
        ),
        (
            "[USER_RAISED_EXCEPTION] [SPARKLOG_INVALID_PARTITION] the topic has partitions 0 to 1, a row names 7",
            "a row of /data/clicks names no partition of the topic",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "nixfs"',
            "/data/clicks cannot be reached",
        ),
        (
            "java.net.ConnectException: Call From vm/127.0.0.1 to localhost:1 failed on connection exception",
            "/data/clicks cannot be reached",
        ),
        (
            JOB_ABORTED + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider",
            "a process of Spark's died, as it does where memory is short",
        ),
        (JOB_ABORTED + "java.io.IOException: No space left on device", "a disk that Spark uses is full"),
        (
            "org.apache.spark.SparkException: [INTERNAL_ERROR] The Spark SQL phase analysis failed.\nCaused by:"
            " java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
            "Spark has stopped",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: json.", "Spark lacks what reads json"),
        ("java.lang.IllegalStateException: Promise already completed", "Spark failed"),
    ],
)
def test_it_says_what_failed_and_what_spark_said(text, failed):
    meaning = meaning_of(ValueError(text), SOURCE)
    begun, _, words = meaning.partition(", and nothing of it is loaded: ")
    assert begun == failed
    assert words
    assert words in text


def test_a_file_that_was_read_when_a_process_died_is_not_blamed():
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.json.\njava.lang.OutOfMemoryError: heap"
    assert meaning_of(ValueError(text), SOURCE).startswith("a process of Spark's died")


def test_of_an_error_in_a_task_of_python_it_says_what_was_raised():
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 32, in boom\n    raise KeyError(1)\n    ^^^^^\nKeyError: 1\n\n\tat java'
    )
    assert meaning_of(ValueError(text), SOURCE) == "Spark failed, and nothing of it is loaded: KeyError: 1"


@pytest.mark.parametrize("answer", [[None], [False]])
def test_a_commit_that_may_have_been_made_is_not_said_to_be_none(monkeypatch, answer):
    """Its answer was lost, and another run of the load has begun before it was asked for again."""
    job: Any = object.__new__(load._Load)
    job._options = SimpleNamespace(name="x")
    job._admin = SimpleNamespace(end_prepared=lambda *_, **__: answer)
    for step in ("_check_topic", "_mark_done"):
        monkeypatch.setattr(load._Load, step, lambda *_: None)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_NOT_LOADED.*another run of it .*run it again") as told:
        job._commit(None, "print")
    assert "nothing of this one is visible" not in str(load._as_told(told.value, "x"))
