"""Sequences about the users that authenticate by SCRAM."""

from __future__ import annotations

from typing import Any

from differential.pair import Both, Pair
from differential.table import sequence

from sparklog.protocol.api_key import ApiKey

SHA_256, SHA_512 = 1, 2
UNKNOWN = (0, 3, -1)


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, **how: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"salted",
        **how,
    }


def deletion(name: str, mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(pair: Pair, step: str, *changes: dict[str, Any]) -> Both:
    return pair.ask(
        step,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        deletions=[each for each in changes if "salt" not in each],
        upsertions=[each for each in changes if "salt" in each],
    )


def describe(pair: Pair, step: str, *names: str, **how: Any) -> Both:
    users = [{"name": name} for name in names]
    return pair.ask(step, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, **{"users": users, **how})


@sequence(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def users(pair: Pair) -> None:
    one, two, odd = (pair.name(each) for each in ("one", "two", "a b,=/ä<default>"))
    describe(pair, "nobody", users=None)
    alter(pair, "nothing")
    alter(pair, "two at once", upsertion(one), upsertion(one, SHA_512, 16384), upsertion(two, SHA_512))
    alter(pair, "an odd name", upsertion(odd))
    describe(pair, "all, by null", users=None)
    describe(pair, "all, by none")
    describe(pair, "some", two, pair.name("nobody"), one, "")
    describe(pair, "one twice", one, two, one)
    describe(pair, "nobody twice", pair.name("nobody"), pair.name("nobody"))
    describe(pair, "no name twice", "", "")
    describe(pair, "an odd one", odd)
    alter(pair, "anew", upsertion(one, iterations=5000))
    alter(pair, "one for another", deletion(one, SHA_512), upsertion(one, SHA_256, 6000))
    describe(pair, "what is left", one)
    alter(pair, "gone", deletion(one), deletion(two, SHA_512))
    alter(pair, "gone once more", deletion(one), deletion(odd))
    describe(pair, "nobody again", users=None)


@sequence(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def users_that_cannot_be(pair: Pair) -> None:
    there, new = pair.name("there"), pair.name("new")
    alter(pair, "one that is there", upsertion(there, SHA_512))
    for iterations in (4095, 16385, 0, -1):
        alter(pair, f"{iterations} iterations", upsertion(new, iterations=iterations), upsertion(there, SHA_512))
    for mechanism in UNKNOWN:
        alter(pair, f"mechanism {mechanism}", upsertion(new, mechanism), upsertion(there, SHA_512))
        alter(pair, f"no mechanism {mechanism}", deletion(new, mechanism))
    alter(pair, "too few, and no mechanism", upsertion(new, iterations=1), upsertion(new, 9))
    alter(pair, "no mechanism, and too few", upsertion(new, 9), upsertion(new, iterations=1))
    alter(pair, "no mechanism to delete, and too few", deletion(new, 9), upsertion(new, iterations=1))
    alter(pair, "right and wrong of one", upsertion(new), upsertion(new, SHA_512, 1))
    alter(pair, "no name", upsertion(""), deletion(""))
    alter(pair, "no name and no mechanism", upsertion("", 9))
    alter(pair, "twice", upsertion(new), upsertion(new))
    alter(pair, "twice, of two mechanisms", upsertion(new), upsertion(new, SHA_512))
    alter(pair, "set and deleted", deletion(new), upsertion(new))
    alter(pair, "deleted twice", deletion(new, SHA_512), deletion(new, SHA_512))
    alter(pair, "twice, and no mechanism", deletion(new), upsertion(new), upsertion(new, 9))
    alter(pair, "not there", deletion(there), upsertion(there, SHA_512), deletion(pair.name("nobody")))
    alter(pair, "no salted password", upsertion(new, salted_password=b""))
    describe(pair, "what came of it", there, new)
    alter(pair, "no salt", upsertion(new, salt=b""))
    describe(pair, "what came of no salt", there, new)
    alter(pair, "all gone", deletion(there, SHA_512), deletion(new), deletion(new, SHA_512))
    describe(pair, "and what is left", users=None)
