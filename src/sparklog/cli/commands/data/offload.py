"""``sparklog offload``: move the records of topics into a table, by Spark on this machine."""

from sparklog.cli.jobs import JobCommand

offload = JobCommand(
    "offload",
    """Move the records of topics into a Delta table, each exactly once.

    Takes what is there now, and ends; with --every or --freshness it runs until Ctrl-C. Each line tells of one commit.
    Needs Spark and Java. On a cluster of Spark's: spark-submit jobs/offload.py, with the same options.

    \b
    Examples:
      sparklog offload --topic clicks --table /data/clicks
      sparklog offload --topic clicks --table /data/clicks --freshness 30s
    """,
)
