"""What to do about the lines of clients, jobs, Spark and the web page; as in ``of_brokers``."""

from __future__ import annotations

from sparklog.cli.logbook.advice import AGAIN, BUG, BUG_OF_CLIENT, NAMED, NOTHING, PEER, SAID, TASKS, ZNODE, ZOOKEEPER

ADVICE = {
    "backup.making": {
        "partition … begins": (
            "Nothing: retention deleted what lies before. Back up more often, or keep records longer, if"
            " it was to be in the backup."
        ),
        "partition … was cut off": NOTHING,
    },
    "cli.main": {"unexpected error": BUG_OF_CLIENT},
    "cli.web_process": {
        "the web page cannot be begun": "See to the reason: a port in use, or a file of its settings.",
        "the web page ended": "Nothing, once. The lines before say why.",
        "the web page: …": "It is a line of the page's own process: do as it says.",
    },
    "client.cluster.config": {
        "ignored Kafka settings": "Nothing. Take them out to be rid of the line.",
        "ignored settings that neither": "Look for a mistake in the name: [the client's settings](client.md).",
    },
    "client.cluster.obstacles": {"still trying": PEER},
    "client.cluster.wakeup": {"a turn failed": BUG_OF_CLIENT},
    "client.consumer.group.coordinator": {"the consumer has not polled": SAID},
    "client.consumer.group.offsets": {
        "auto-commit for group": (
            "Nothing, once: the next commit has these offsets too. Where it goes on, records are read"
            " again after a restart; the reason says why."
        )
    },
    "client.consumer.positions": {
        "…; it goes on at the … offset, as": (
            "Records between were deleted, or the topic was made again. Read more often, or keep records"
            " longer: [retention](retention.md)."
        ),
        "…; it goes on at the … offset": (
            "Records between were deleted, or lost by an unclean election: the brokers' logs say which."
        ),
        "…; it goes on there": ("The log was cut by an unclean election: records after that offset may be others now."),
    },
    "client.producer.accumulator": {"a batch for": BUG_OF_CLIENT},
    "client.producer.async_producer": {
        "… records were not delivered": (
            "Send these records again; the reason says why they were not taken. Close with a longer timeout."
        ),
        "… records were not sent": SAID,
    },
    "client.producer.delivery": {
        "a delivery callback failed": ("See to the callback of the program: the traceback says where.")
    },
    "client.producer.sender": {
        "a batch could not be encoded": BUG_OF_CLIENT,
        "why a batch": BUG_OF_CLIENT,
    },
    "client.zookeeper.member": {
        "consumer … lost its": f"Nothing: it registers and claims anew. {ZOOKEEPER}",
        "consumer … could not rebalance": (
            "Nothing, where it stops: another consumer still holds a claim. Where it goes on, see which"
            " consumer does not give up: `/consumers/GROUP/owners`."
        ),
        "consumer … cannot rebalance": BUG_OF_CLIENT,
        "consumer … could not write": f"{AGAIN} Until then a restart reads records again.",
        "consumer … does not hold": ("Nothing: another consumer has the partition, and reads from the offset before."),
    },
    "client.zookeeper.registry": {
        "a member is left out": ZNODE,
        "nothing of topic": ZNODE,
        "a stored offset": ZNODE,
    },
    "compaction.host_rate": {
        "the rate of cleaning": (
            "Tasks of this machine may together read and write faster than the rate that was set. See to"
            " the directory that the reason names."
        )
    },
    "local.service_manager": {
        "systemd cannot be told": (
            "See to `NotifyAccess=` and `Type=notify` of the unit: [operations.md](operations.md)."
        )
    },
    "local.supervisor": {"could not report": BUG, "could not look after": BUG},
    "spark.batch.compact": {"… at broker": "Nothing: the broker cleans the partition itself after that."},
    "spark.batch.load": {"topic … keeps": SAID},
    "spark.batch.offload": {
        "…; beginning again": "Nothing, once. Where it goes on, the reason says what fails.",
        "records come into": SAID,
    },
    "spark.batch.offload_groups": {"topic … waits": SAID},
    "spark.batch.renewal": {
        "the cleanings of broker … are": PEER,
        "broker … has given up": (
            "Nothing: these partitions are cleaned at the next run. The job was slower than its grants last."
        ),
    },
    "spark.batch.tasks": {"of … tasks": TASKS},
    "spark.lake.delta.dead_letters": {
        "… records did not decode": ("Look at that table: it has the bytes, and why they do not decode.")
    },
    "spark.lake.delta.maintenance": {"table … was not": AGAIN},
    "spark.lake.delta.upsert_table": {
        "… records have no key": ("See which producer writes records without keys into a topic that is upserted.")
    },
    "spark.lake.history.decoded_rows": {
        "… records of the log": ("They are dead letters of the offload, and are not shown as rows.")
    },
    "spark.lake.places.jdbc_table": {
        "…: the staging table": ("Drop the table that the line names, when no job writes.")
    },
    "spark.options.raw": {
        "option '…' means": "Take the option out.",
        "option '…' is not": SAID,
    },
    "spark.options.task_login": {
        "delegation tokens of": NOTHING,
        "delegation token … of": (
            "Nothing, where it stops before the token ends. Else tasks are refused: the reason says why."
        ),
    },
    "spark.read.data_loss": {
        "[…] …": (
            "Records are lost to this query, and `failOnDataLoss=false` lets it go on. Read more often,"
            " or keep records longer: [retention](retention.md)."
        )
    },
    "spark.read.directories": {
        "a broker is at work": ("Read by the brokers (`kafka.bootstrap.servers`), if all records are wanted.")
    },
    "spark.read.fetch_paths": {"reading by Fetch": ("Nothing: it is slower. The reason says what direct reads lack.")},
    "spark.read.options": {"options of a schema registry": SAID},
    "spark.read.sizes": {"the sizes of": "Nothing: batches may be cut unevenly."},
    "spark.sessions": {
        "Spark runs already": SAID,
        "Spark's workers run": SAID,
    },
    "spark.throttling": {
        "a quota holds": ("Raise the quota of that client id, or live with it: [quotas.md](quotas.md).")
    },
    "spark.write.decider": {
        "nothing is known": (
            "Nothing for a query that wrote elsewhere until now. Else compare what it wrote last with its source."
        ),
        "what failed tasks of scope … left open is left": "Nothing: the next batch ends it, or its timeout does.",
        "what failed tasks of scope … left open is not": AGAIN,
        "batch … of scope": (
            "Write that batch again from its source. Raise `transaction.timeout.ms` above the longest"
            " that a batch is open."
        ),
    },
    "spark.write.open_writes": {
        "what scope": NAMED,
        "what dead batch": NAMED,
        "what the dead batch": "Finish it by hand: `sparklog writes list`, `sparklog writes finish`.",
        "batch write": "See why the driver died. `sparklog writes list` shows what is left.",
    },
    "spark.write.writer": {
        "batch … of … was written": "Nothing: it is the answer to a batch that is run again.",
        "what batch … of": "Nothing: the next run ends it, or its timeout does.",
    },
    "web.protection": {"unexpected error": BUG_OF_CLIENT},
}
