"""Which tests of the quick suite are left to CI and `make test-all`, by how long each took.

`slow.txt` names them. `pytest --choose-slow SECONDS` runs all that are not marked, as if there were
no such file, and writes it anew: the tests that it leaves take so many seconds together.
`--more-slow SECONDS` runs those that the file leaves, and adds to it. The longest go first. Of a
test with many cases the quickest one counts a third, so that it stays longer than the others, and
each guarantee is looked at.
"""

from pathlib import Path

LIST = Path(__file__).parents[1] / "slow.txt"


def listed():
    """The names in the file."""
    return set(LIST.read_text().splitlines()) if LIST.exists() else set()


def choose(seconds, budget):
    """The names to leave out, so that what stays takes `budget` seconds.

    Args:
        seconds: by name of a test, as pytest has it, how long it took.
        budget: in seconds.
    """
    quickest = {}
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        quickest.setdefault(name.split("[")[0], name)
    kept = set(quickest.values())

    def weight(name):
        return seconds[name] / 3 if name in kept else seconds[name]

    total, left = sum(seconds.values()), []
    for name in sorted(seconds, key=lambda name: (-weight(name), name)):
        if total <= budget:
            break
        total -= seconds[name]
        left.append(name)
    return sorted(left)


class Recorder:
    """Adds up what each test took, with what was made ready for it, and writes the file.

    Args:
        budget: in seconds, of the tests that the file leaves.
        kept: names that stay in it.
    """

    def __init__(self, budget, kept=frozenset()):
        self.budget, self.kept, self.seconds, self.failed = budget, kept, {}, False

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == 2:  # stopped by Ctrl-C: what came later has no time
            return
        names = sorted(self.kept | set(choose(self.seconds, self.budget)))
        LIST.write_text("".join(f"{name}\n" for name in names))
