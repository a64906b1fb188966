"""Kafka's own AclAuthorizer and ours are told the same lists and asked the same: they answer the same, seed by seed."""

from pathlib import Path
from random import Random

import pytest
from security.acl import drawn

from sparklog.security.access import Operation
from sparklog.security.acl import znode
from sparklog.security.acl.authorizer import AclAuthorizer
from sparklog.security.acl.binding import AclFilter
from sparklog.security.acl.entry import ALL, Permission
from sparklog.security.acl.pattern import PatternType
from sparklog.security.acl.snapshot import AclSnapshot
from sparklog.security.audit import AuditLog
from sparklog.security.principal import Principal
from sparklog.testing.kafka import run_kafka_tool

pytestmark = pytest.mark.peer

PROGRAM = Path(__file__).parent / "Acls.java"
QUESTIONS = 60


def _binding(binding):
    (kind, name, type_), (who, where, operation, permission) = binding
    return kind.name, name, type_.name, who, where, operation.name, permission.name


def _asked(filter_):
    """None is ANY where a word is wanted, and "-" where a text is."""
    kind, name, type_, who, where, operation, permission = filter_
    named = [each.name if each is not None else "ANY" for each in (kind, operation, permission)]
    texts = [each if each is not None else "-" for each in (name, who, where)]
    return named[0], texts[0], type_.name, texts[1], texts[2], named[1], named[2]


def _filter(random):
    def perhaps(values):
        return random.choice((None, *values))

    return AclFilter(
        perhaps(drawn.KINDS),
        perhaps(drawn.NAMES),
        random.choice(list(PatternType)),
        perhaps(drawn.PRINCIPALS),
        perhaps((*drawn.HOSTS, "*")),
        perhaps((ALL, *Operation)),
        perhaps(Permission),
    )


def _with_seed(seed):
    """What Kafka is told and asked, and what we answer."""
    random = Random(seed)
    bindings = sorted(drawn.bindings(random, 40))
    root = random.choice((None, Principal.parse(random.choice(drawn.PRINCIPALS))))
    without_acl = random.random() < 0.4
    ours = AclAuthorizer([root] if root else [], AuditLog(lambda: 0.0), allow_without_acl=without_acl)
    ours.snapshot = AclSnapshot(drawn.lists_of(bindings))
    told = [("begin", str(root or ""), str(without_acl).lower()), *(("add", *_binding(each)) for each in bindings)]
    answers = []
    for _ in range(QUESTIONS):
        caller, operation, resource = drawn.caller(random), random.choice(list(Operation)), drawn.resource(random)
        asked = (str(caller.principal), caller.host, operation.name, resource.kind.name)
        told += [("ask", *asked, resource.name), ("somewhere", *asked)]
        answers += [
            "yes" if ours.allows_quietly(caller, operation, resource) else "no",
            "yes" if ours.allows_somewhere(caller, operation, resource.kind) else "no",
        ]
    for _ in range(10):
        filter_ = _filter(random)
        told.append(("find", *_asked(filter_)))
        found = set(filter_.found_in(ours.snapshot.lists))
        answers.append(" ".join(["found", *(str(at) for at, each in enumerate(bindings) if each in found)]))
    for each in bindings[:10]:
        told.append(("znodes", *_binding(each)))
        change = f"{znode.CHANGES[each.pattern.type]}/{znode.CHANGE_PREFIX}"
        data = znode.encode_list([each.entry]).decode(), change, znode.encode_change(each.pattern).decode()
        answers.append("\t".join([znode.list_path(each.pattern), *data]))
    return told, answers


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 3000), marks=pytest.mark.slow)])
def test_kafkas_authorizer_and_ours_answer_the_same(seeds):
    told, answers = [], []
    for seed in seeds:
        lines, ours = _with_seed(seed)
        told += lines
        answers += ours
    asked = [line for line in told if line[0] not in ("begin", "add")]
    kafkas = run_kafka_tool(str(PROGRAM), stdin="".join("\t".join(line) + "\n" for line in told)).splitlines()
    assert len(kafkas) == len(answers) > len(seeds) * QUESTIONS * 2
    assert {"yes", "no"} <= set(kafkas)
    differing = [each for each in zip(asked, kafkas, answers, strict=True) if each[1] != each[2]]
    assert differing == []
