"""A folder of notifications in a ZooKeeper that is none."""

from sparklog.errors import CoordinationError, MalformedZnode


class Unsteady:
    """What is in ZooKeeper, and cannot be asked for so many times as ``failures`` says."""

    failures = 0

    def speak(self):
        """Called before anything is read."""
        if self.failures:
            self.failures -= 1
            raise CoordinationError("ZooKeeper: ConnectionLoss")

    def ensure_tree(self):
        self.speak()


class FakeNotifications:
    """What ``NotificationFolder`` would find; ``tell`` puts one there, and fires the watch unless it is ``lost``.

    ``speak`` is called before anything is read, and may raise.
    """

    def __init__(self, speak=lambda: None):
        self.told = {}
        self.next_number = 0
        self.watch = None
        self.session_id = 1
        self.kept_ms = None
        self._speak = speak

    def numbers(self, on_change=None):
        self._speak()
        self.watch = on_change
        return sorted(self.told)

    def name(self, number):
        self._speak()
        found = self.told.get(number)
        if found == "malformed":
            raise MalformedZnode("znode does not tell of a change")
        return found

    def forget(self, kept_ms):
        self.kept_ms = kept_ms

    def tell(self, name, *, lost=False):
        self.told[self.next_number] = name
        self.next_number += 1
        watch, self.watch = self.watch, None
        if watch and not lost:
            watch()
