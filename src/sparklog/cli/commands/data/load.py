"""``sparklog load``: bring files into a topic, by Spark on this machine."""

from sparklog.cli.jobs import JobCommand

load = JobCommand(
    "load",
    """Load the rows of files into a topic, each exactly once: a rerun under the same --name adds nothing.

    Needs Spark and Java. On a cluster of Spark's: spark-submit jobs/load.py, with the same options.

    \b
    Examples:
      sparklog load --topic clicks --from /data/clicks --format parquet --name clicks-2013
      sparklog load --topic clicks --from /data/clicks.json --format json --name first --key id
    """,
)
