"""Tag that waits, after a number of turns, until a run's metrics have analysed all its matches."""

import json
import time
from pathlib import Path

from remuda.envs.games.tag import Tag

SETTLED = 1.0  # seconds in which the coordinator writes the last matches into the ledger
LONGEST = 5.0  # seconds of each of the last turns


class PatientTag(Tag):
    """Its episodes end together; after `patient` of them, each turn waits for an analysis."""

    def __init__(self, num_envs=1, *, run="", patient=1, **options):
        super().__init__(num_envs, **options)
        self._run, self._patient, self._length = run, patient, options["max_turns"]
        self._turns_played = 0

    def end_turn(self):
        self._turns_played += 1
        if self._turns_played > self._patient * self._length + 1:  # one more is of the warm-up
            limit = time.monotonic() + LONGEST
            while not self._is_analysed() and time.monotonic() < limit:
                time.sleep(0.05)
        return super().end_turn()

    def _is_analysed(self):
        """Whether the newest analysis was requested after the last match."""
        path = Path(self._run) / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        rows = [row for row in rows if row["matches"] == self._patient * self.num_envs]
        if not rows:
            return False
        age = rows[-1]["population"]["analysis_age"]
        return age is not None and rows[-1]["seconds"] - age > rows[0]["seconds"] + SETTLED
