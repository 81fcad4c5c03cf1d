"""Members of a population that are written by hand outlive the actor that asks them."""

import pytest

from assembled import assemble
from faults.runs import SMALL, SabotagedActor, SabotagedLearner, fail, run_until
from remuda.config import load_config, overlay
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.population.ledger.ledger import MATCH, read_records
from remuda.population.ledger.records import SCRIPTED, PolicyRef
from remuda.population.members.table_parts import MATCHES
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.store import Checkpoints
from support import Tape

pytestmark = pytest.mark.process

TREE = {
    "policy": {
        "algorithm": "ppo",
        "learning_rate": 1e-6,  # who learned to play as they do would win as often
        "ppo": {"rollout_length": 16},
        "experience": {"segment_length": 4, "wait_limit": 120.0},
    },
    "env": {"num_envs": 4},
    "population": {
        "matchmaker": "random",
        "policies": 2,
        "scripted": {"best": "hand_written:three", "bot": "random"},
    },
    "supervision": {"silence_limit": 20.0, "backoff": 0.05},
    "learners": {"processes": 1},
}


@pytest.mark.slow
def test_they_play_on_when_the_actor_is_killed(tmp_path):
    config, agents = load_config(overlay(SMALL, TREE)), Tape().agents
    specs = policy_specs(config, agents)
    layout = make_layout(config, len(specs))
    ring = assemble(config, specs, layout, SabotagedLearner, SabotagedActor, agents=agents)
    runtime = ring.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    runtime.start(lambda: False)
    try:
        table, best = ring.table, PolicyRef("best", SCRIPTED)
        ledger_writer = LedgerWriter(table, tmp_path / "ledger.bin", print)
        run_until(runtime, lambda: table.population()[best].games > 30)
        fail(runtime, "actor", "kill -9")
        before, matches = table.population()[best], table.word(MATCHES)
        assert before.games > 30
        run_until(runtime, lambda: table.word(MATCHES) > matches + 100)
        runtime.stop()
        ledger_writer.write()
        now = table.population()[best]
        assert now.games > before.games + 10
        assert now.win_rate > 0.9
        names, records = read_records(tmp_path / "ledger.bin")
        played = records[records["kind"] == MATCH]
        theirs = played["returns"][played["policy"] == names.index("best")]
        assert set(theirs.tolist()) == {9.0, 15.0}  # it plays 3 in every turn, whoever asks it
    finally:
        runtime.stop()
