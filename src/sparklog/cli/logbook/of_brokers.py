"""What to do about the lines of brokers: by module, then by how a line begins; the longest beginning counts."""

from __future__ import annotations

from sparklog.cli.logbook.advice import (
    AGAIN,
    BUG,
    CUT,
    DAMAGE,
    DISK,
    LEFT,
    NAMED,
    NOTHING,
    PEER,
    SAID,
    ZNODE,
    ZOOKEEPER,
)

ADVICE = {
    "broker.apis.cluster.describe_client_quotas": {"the quotas of … are not told": ZNODE},
    "broker.apis.cluster.update_metadata": {
        "groups keep their offsets": (
            "Nothing: a controller spoke of an older state. Where it comes again for the same topic, report it."
        )
    },
    "broker.apis.records.produce": {
        "refused a batch": ("See to the client that it names: the reason says what is wrong with its batch.")
    },
    "broker.apis.replicas.leader_and_isr": {
        "topic … is not served": (
            "Mend the topic's settings: `sparklog config describe --topic NAME`, `sparklog topic alter`."
        ),
        "what the controller says waits": f"{AGAIN} {ZOOKEEPER}",
    },
    "broker.apis.replicas.stop_replica": {
        "not deleted": (
            "Nothing: the files are kept, for ZooKeeper says that they are needed. Where it comes again, report it."
        )
    },
    "broker.client_quotas": {
        "the quotas of … stay": ZNODE,
        "no rate of connections": ("See to the name service, or set the rate for the address: `sparklog quota set`."),
    },
    "broker.context": {
        "… failed": BUG,
        "… cannot be loaded": (
            "Groups or transactions of this partition wait. See to the reason in the traceback: a disk,"
            " or a damaged segment. Let another broker lead the partition meanwhile: stop this one."
        ),
    },
    "broker.following": {
        "changed … will be looked for": f"{AGAIN} {ZOOKEEPER}",
        "changed … could not be taken over": f"{BUG} A restart takes over what was changed.",
        "a notification": ZNODE,
    },
    "broker.handling.loggers": {"the level of logger": "Nothing: an administrator did that."},
    "broker.lifecycle.chores": {"… failed": f"{BUG} The work is done again at its next time."},
    "broker.lifecycle.first_registry": {"the first design's registry is behind": f"{AGAIN} {ZOOKEEPER}"},
    "broker.lifecycle.listening": {
        "listener … goes on with": (
            "Put a key store that can be read in place before the old certificate ends: [a certificate"
            " has expired](runbook.md#a-certificate-has-expired)."
        )
    },
    "broker.lifecycle.predecessor": {
        "cannot keep the ZooKeeper session": (
            "See to the rights and the room of the directory. Until then a start after a crash waits for"
            " the old session to end."
        ),
        "cannot note the ZooKeeper session": (
            "See to the room of the log directories. Until then a start after a crash waits for the old session to end."
        ),
    },
    "broker.lifecycle.registration": {
        "the ZooKeeper session is lost": (
            "Nothing, if the broker says soon that it is registered. Pauses of the machine and of the"
            f" network do this. {ZOOKEEPER}"
        ),
        "no ZooKeeper has taken": ZOOKEEPER,
        "…; waiting": (
            "Nothing after a crash: the session of the broker before ends. Where the start fails after"
            " that, another broker runs under the same id: stop one, or give it another id."
        ),
        "the broker could not be registered": f"{AGAIN} {ZOOKEEPER}",
    },
    "broker.old_format": {"cannot convert": f"A client from before Kafka 0.11 cannot read there. {DAMAGE}"},
    "broker.replication.departure": {
        "the partitions led here": (
            "Nothing: others take over when the broker is gone. Clients wait longer; look at once whether"
            " all partitions have leaders: `sparklog topic describe --unavailable`."
        )
    },
    "broker.replication.fetcher": {
        "cannot copy from broker": PEER,
        "copying from broker … failed": BUG,
        "cannot copy …, trying": PEER,
        "… ends at … with its leader": (
            "Nothing: what the leader does not have was never acknowledged by all, or was lost by an"
            " unclean election, which has a line of its own."
        ),
        "… begins at … with its leader": (
            "Nothing: this replica was away for longer than the leader keeps records, and copies what is left."
        ),
    },
    "broker.replication.fetchers": {"hanging up failed": BUG},
    "broker.replication.isr_changes": {
        "the ISR of some partitions is not written yet: …": (
            "Nothing, where it stops within a minute. Where it goes on: [the controller is"
            " lost](runbook.md#the-controller-is-lost)."
        ),
        "the ISR of some partitions is not written yet": BUG,
        "the ISR … of": "Nothing: the controller knows better, and tells this broker.",
    },
    "broker.retention": {
        "what is offloaded is not known": (f"{AGAIN} Meanwhile retention deletes nothing that waits for its offload."),
        "group … has an offset": (
            "Commit offsets of an offload by the job only. Delete the group if its topic was made again:"
            " `sparklog group delete`."
        ),
    },
    "broker.security.acls": {"…; until it is mended": SAID},
    "broker.security.authenticating": {
        "user … cannot come": ("Set the user's password anew: `sparklog user set-password`.")
    },
    "broker.security.tokens": {"nobody comes by": ZNODE},
    "broker.server": {
        "the start failed, and stopping": (
            "The first traceback says why the start failed; the second is a mistake of sparklog's: report it."
        ),
        "…": (
            "It refuses a peer, and says why: a certificate or a principal that does not do, or a"
            " controller that is none any more. Where a peer of yours comes again, see to its settings."
        ),
        "the limits on connections": "Mend the setting that the reason names: `sparklog config alter`.",
        "the failed log directory": f"{AGAIN} {ZOOKEEPER}",
        "…: hanging up": (
            "Nothing: a second signal, or the time for the stop, has ended the wait. Clients ask again elsewhere."
        ),
    },
    "broker.settings": {"…; nothing is taken over": ZNODE},
    "broker.strays": {
        "… is left as it is, and not served": (
            f"Nothing, if ZooKeeper answers again: the controller tells it anew. {ZOOKEEPER}"
        ),
        "… is left as it is: the controller": (
            "Nothing: the files are kept. Where it comes again after the controller has changed, report it."
        ),
    },
    "broker.txn.coordinators": {
        "… requests wait": PEER,
        "the coordinator at": PEER,
    },
    "broker.txn.markers": {
        "…: a marker for producer": (
            "Nothing, once. Where it goes on, a coordinator lives in a state that ZooKeeper does not"
            " know: look for a second cluster on the same log directories."
        ),
        "…: the last marker": (
            "Nothing: it was written by a coordinator of a history that is gone, such as that of another ZooKeeper."
        ),
        "broker … did not take": PEER,
    },
    "cli.commands.serve.broker_run": {"…: …": SAID},
    "config.broker": {
        "these settings of Kafka's": "Nothing. [settings.md](settings.md) says why each means nothing here.",
        "… is deprecated": "Use the setting that the line names.",
        "these settings are for all": "Nothing. Take the prefix of the listener away, if it was to count.",
    },
    "config.dynamic": {
        "the stored broker setting": (
            "Delete it: `sparklog config alter --delete-config NAME`, with `--broker` or `--all-brokers`."
        )
    },
    "config.topic": {
        "topic … keeps": ("Set it anew, or delete it: `sparklog topic alter NAME --delete-config SETTING`.")
    },
    "controller.channel": {"broker … did not take": PEER},
    "controller.deletion": {
        "topic … is not deleted": "Mend the znode that the reason names: the topic waits for its deletion.",
        "topic … could not": "Nothing: a broker that has replicas of it is away, or refuses; it is asked again.",
    },
    "controller.reassigner": {
        "no replicas are moved": SAID,
        "… is not moved": "Plan the move anew, with brokers that live: `sparklog cluster reassign`.",
        "broker … keeps the files": (
            "Nothing, once the broker or its disk is back: it is told again. Else remove the directory"
            " while the broker is stopped."
        ),
    },
    "controller.runtime": {
        "refused … of broker": "Nothing: the broker registers anew, and asks again.",
        "…": "A broker asked for an ISR that makes no sense: report it.",
        "controller: …": f"{AGAIN} {ZOOKEEPER}",
        "the controller failed": f"{BUG} It gives up its office, and is elected anew.",
        "broker … said that it was about to stop": "See why its stop takes so long: its own log says it.",
        "topic … is left alone": ZNODE,
        "… is led by broker …, whose log ends last": (
            "All replicas crashed, and the one with the most records leads. Compare with the producers what is missing."
        ),
        "… is led by broker …, which was not in sync": (
            "Records may be lost. `unclean.leader.election.enable`, or `cluster elect --unclean`, allowed"
            " it: [a partition has no leader](runbook.md#a-partition-has-no-leader)."
        ),
        "broker … does not hold": f"The broker's own log says why. {DISK}",
        "broker … refused": "Nothing, where it stops within a minute: it is asked again.",
    },
    "controller.succession": {
        "broker …, the controller, is gone": (
            "[A broker is lost](runbook.md#a-broker-is-lost); another one becomes the controller at once."
        )
    },
    "controller.vigils": {
        "watching … failed": BUG,
        "broker … has stopped": NOTHING,
        "broker … is gone": "[A broker is lost](runbook.md#a-broker-is-lost): start it again.",
        "broker … takes connections again": "See why it took none: a machine that stood still, or a network.",
    },
    "group.consumer_groups": {
        "group … stays": ("Nothing: members of the older protocol cannot join until those of the newer one have left.")
    },
    "group.loading": {
        "…: leaving out": "Nothing: the members join anew. Where it comes at each start, report it.",
        "…: … records": "Nothing: a newer version wrote them.",
        "…: what lies at": SAID,
    },
    "group.metadata_manager": {
        "the members of the groups": (
            "Raise `sparklog.group.members.max.bytes`, or see which clients tell so much of themselves."
        ),
        "…: cannot write to __consumer_offsets: …": (
            "Nothing, where it stops: clients try again. Where it goes on, too few replicas of that"
            " partition are in sync, or its disk refuses."
        ),
        "…: cannot write to __consumer_offsets": BUG,
        "the groups' coordinator": BUG,
    },
    "group.runtime": {"__consumer_offsets-…": SAID},
    "log.adoption": {"…: segments were being adopted": NOTHING},
    "log.cut": {"…: the start cut": CUT},
    "log.directories.cleaner_points": {"…; every compacted log": "Nothing: cleaning takes longer once."},
    "log.directories.departures": {
        "… is set aside": SAID,
        "… is left of a deleted": (
            "Give the broker's user the right to remove what the line names, or remove it yourself."
        ),
    },
    "log.directories.directory": {
        "… was set aside": SAID,
        "…; …": "Nothing: a checkpoint was damaged, and the start takes longer. Check the disk.",
    },
    "log.directories.inventory": {"… is removed": NOTHING},
    "log.directories.log_dirs": {"log directory …": "[A disk has failed](runbook.md#a-disk-has-failed)."},
    "log.directories.manager": {
        "nothing is here of": SAID,
        "… partition(s) of": (
            "Nothing: what is lost is copied from the others. Check the disk, and whether something removed files."
        ),
        "… is not served until": DISK,
        "… is not served: …": (
            f"{DAMAGE} Or, where others are in sync, remove its directory while the broker is stopped."
        ),
        "…": DISK,
        "a disk operation": BUG,
        "… was not closed": DISK,
    },
    "log.directories.moved": {
        "… was moved to": NOTHING,
        "… was being moved": NOTHING,
        "… is removed": NOTHING,
    },
    "log.directories.room": {
        "log directory … …: …": "[A disk is full](runbook.md#a-disk-is-full).",
        "log directory … …": "Nothing: the disk takes records again. See that it does not fill again.",
    },
    "log.loader": {
        "… is removed": NOTHING,
        "… ends at offset …, before": "Nothing: what is left of it was deleted before.",
        "… lacks offsets": SAID,
        "… ends at offset …, but": SAID,
        "…; the epochs": NOTHING,
        "… and what lies before": "Nothing: records there were deleted by retention or by request already.",
        "… ends before offset": DAMAGE,
        "rebuilding the indexes": "Nothing: the start takes longer. It comes after each crash.",
        "… is damaged": DAMAGE,
        "… stands behind": DAMAGE,
    },
    "log.producer_state": {"…; replaying": "Nothing: the start takes longer."},
    "log.recovery": {
        "…: torn tail": CUT,
        "…: corrupt block": SAID,
    },
    "log.scan": {"…: … bytes": SAID},
    "log.stopped": {
        "…: the last": "Nothing: the broker that was stopped had not written them whole.",
        "…; the batches": "Nothing: it takes longer.",
        "…; an older one": "Nothing: it takes longer.",
    },
    "log.swap": {
        "…: a rewrite": "Nothing: a crash interrupted a cleaning, which is done again.",
        "…: a swap": NOTHING,
        "removing …": NOTHING,
    },
    "net.channel": {
        "closing the connection of": (
            "See to that client: the reason says what it sent. Strangers who scan ports cause it too."
        ),
        "a request from … failed": f"{BUG} The client is answered with an error, or hung up on.",
    },
    "net.peers": {"hanging up failed": BUG},
    "net.server": {
        "cannot accept": "[A broker runs out of files](runbook.md#a-broker-runs-out-of-files).",
        "all max.connections": "Raise `max.connections`, or see which clients hold so many.",
        "hung up on": "Raise the limit that the line names, or see what connects so often from there.",
        "… connects more often": "See to the client, or raise the rate: `sparklog quota set`.",
        "closing the connection": (
            "See to the client: its certificate, its protocol, or its user does not do, as the reason says."
        ),
        "requests in hand": (
            "Raise `queued.max.request.bytes`, if memory allows, or see which clients send so much at once."
        ),
    },
    "net.slow_requests": {"slow: …": ("[logging.md](logging.md#slow-requests) says what each part of the time is.")},
    "net.turns": {
        "… held up": ("Nothing, once: the machine was busy. Often: [a broker is slow](runbook.md#a-broker-is-slow)."),
        "… failed in its turn": BUG,
    },
    "replica.cleaning": {
        "… failed": BUG,
        "log cleaner thread": BUG,
        "the cleaner checkpoint": "Nothing: the log was cut or made again.",
        "what a cleaning left": LEFT,
        "…: … records without": (
            "A compacted topic keeps no record without a key. See which producer wrote them before the"
            " topic was compacted."
        ),
        "cleaning … failed": f"{BUG} The log is tried again.",
        "… is not cleaned now": NAMED,
        "… cannot be cleaned": "[A log is not cleaned](runbook.md#a-log-is-not-cleaned).",
    },
    "replica.cleaning_grants": {
        "… failed": BUG,
        "what a job left": LEFT,
    },
    "replica.erasing": {
        "… failed": BUG,
        "what an erasure left": LEFT,
        "erasing records of … failed": f"{BUG} Ask for the erasure again.",
        "records of … are not": "Ask for the erasure again when what the reason names is mended.",
    },
    "replica.following": {
        "… drops committed": (
            "Records may be lost: an unclean election, or a leader whose disk lost its end. Look for that"
            " line in the controller's log, and compare with the producers."
        )
    },
    "replica.future": {
        "… failed": BUG,
        "cannot copy": DISK,
        "… is left of": DISK,
    },
    "replica.manager": {
        "… is not served": f"{DAMAGE} Or, where others are in sync, remove its directory while the broker is stopped.",
        "… is served no longer": DISK,
        "… …: …": DISK,
        "refused a fetch": "Nothing, where it stops: the follower hears of the leader, and asks again.",
        "cannot read": DAMAGE,
    },
    "replica.purgatory": {"cannot tell": BUG},
    "replica.retention": {
        "retention deletes nothing": ("Mend the setting or the disk that the reason names: the log grows until then."),
        "… loses records": "[An offload falls behind](runbook.md#an-offload-falls-behind).",
        "… holds back": "[An offload falls behind](runbook.md#an-offload-falls-behind).",
    },
    "security.audit": {
        "refused: …": (
            "Somebody tried what they may not. Give the right, if it is theirs: `sparklog acl add`; else see who it is."
        )
    },
    "security.oauth.signed": {
        "the keys of": (
            "See whether the issuer's address answers. Tokens signed by newer keys are refused until it does."
        )
    },
    "txn.completion": {
        "a newer epoch": (
            "Nothing: the producer has gone on under a newer epoch, and that transaction was ended with it."
        ),
        "trying again": PEER,
        "cannot write": BUG,
    },
    "txn.records": {"…: what lies at": SAID},
    "txn.runtime": {
        "… cannot be looked after": (
            f"{BUG} That transactional id may stay open: [a transaction stays"
            " open](runbook.md#a-transaction-stays-open)."
        ),
        "__transaction_state-… is not": (
            "Start the brokers that have replicas of that partition. Its transactions wait."
        ),
        "…: cannot write to __transaction_state: …": (
            "Nothing, where it stops: clients try again. Where it goes on, too few replicas of that"
            " partition are in sync, or its disk refuses."
        ),
        "…: cannot write to __transaction_state": BUG,
        "a transaction is stuck": (
            f"{BUG} Start the broker again, so that another one loads the partition: [a transaction stays"
            " open](runbook.md#a-transaction-stays-open)."
        ),
        "__transaction_state-… holds": SAID,
    },
    "zk.brokers": {
        "broker … is left alone": ZNODE,
        "every broker that": f"Nothing is lost: brokers that come back copy more than they need. {ZNODE}",
    },
    "zk.configs": {
        "the settings of topic": ZNODE,
        "stored settings": ZNODE,
    },
    "zk.office": {"whose brokers": ZNODE},
    "zk.partition_states": {
        "no replica counts": ZNODE,
        "the state of": (
            "Nothing: it is read anew. Something beside the controller writes there: look for a second"
            " controller or a tool."
        ),
    },
}
