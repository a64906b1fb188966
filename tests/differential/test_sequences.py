"""What Kafka 3.9.1 answers to sequences of requests, and we: the same, but for what ``allow.txt`` names."""

import differential.sequences_admin
import differential.sequences_groups
import differential.sequences_log
import differential.sequences_transactions
import differential.sequences_users  # noqa: F401
import pytest
from differential.pair import Pair
from differential.table import SEQUENCES, Allowance, allowances

pytestmark = [pytest.mark.peer, pytest.mark.slow]
CASES = [pytest.param(each, level, id=f"{each.name}-{level}") for each in SEQUENCES for level in range(each.levels)]


@pytest.fixture(scope="module")
def allowed():
    """The allowed differences; when all sequences have run, each must have come up, but for those of «sometimes»."""
    found, ran, used = allowances(), [], set[Allowance]()
    yield found, ran, used
    if len(ran) == len(CASES):
        stale = [str(each) for each in found if each not in used and not each.reason.startswith("sometimes")]
        assert not stale, "\n".join(["these differences are no more; take them out of allow.txt:", *stale])


@pytest.mark.parametrize(("asked", "level"), CASES)
def test_both_answer_alike(addresses, versions, allowed, asked, level):
    found, ran, used = allowed
    with Pair(addresses, versions, asked.name, level) as pair:
        asked.run(pair)
    wrong = []
    for difference in pair.differences:
        covering = [allowance for allowance in found if allowance.covers(difference)]
        used.update(covering)
        if not covering:
            wrong.append(difference)
    ran.append(asked)
    assert not wrong, "\n".join(["Kafka and sparklog differ:", *map(str, wrong)])
