"""How far learners are behind, in steps: what was collected and they have not come to."""

import io

import numpy as np
import pytest
from rich.console import Console

from crowds import Slots
from metric_lines import scalars
from remuda.config import load_config
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.coordinator.status import StatusFile, read_status
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import Rollout
from remuda.population.specs import policy_specs
from remuda.system.memory.waiting import Wakeup
from remuda.system.scoreboard import Learn, Policy, Scoreboard
from remuda.ui.terminal.status import print_status
from ring_writers import ExperienceWriter
from support import Tape, make_experience

PPO = {
    "algorithm": "ppo",
    "ppo": {"rollout_length": 8},
    "experience": {"segment_length": 1},
}


def play(experience, steps):
    writer, one = ExperienceWriter(experience), np.ones(1, bool)
    for _ in range(steps):
        seen = np.zeros((1, 5), np.float32)
        writer.decide(seen, np.zeros((1, 1), np.int64), 0, one)
        writer.outcome(np.zeros(1, np.float32), one, ~one, seen, one)


def make(**policy):
    config = load_config({"game": "support:Tape", "policy": policy})
    spec = policy_specs(config, Tape().agents)[0]
    experience = make_experience(spec, (1,), Wakeup(), (Wakeup(),))
    scoreboard = Scoreboard(("agent_0",))
    return experience, scoreboard, ScoreboardReader(scoreboard, {"agent_0": experience})


def record(board):
    return board.between(board.start, board.read())


def test_a_learner_of_rollouts_is_behind_by_what_it_has_not_trained_on():
    experience, scoreboard, board = make(**PPO)
    play(experience, 11)
    assert record(board).policies["agent_0"].behind == 11
    rollouts, out = RolloutQueue(experience), Rollout.empty(experience, 1)
    rollouts.take(out, 0, 0)
    assert record(board).policies["agent_0"].behind == 11, "what is taken is not trained on yet"
    scoreboard.learn("agent_0")[[Learn.TRAINED, Learn.LOST]] = 6, 2
    found = record(board)
    assert found.policies["agent_0"].behind == 3
    assert dict(scalars(found))["agent_0/behind"] == 3.0


@pytest.mark.parametrize(("samples", "behind"), [(0, 40), (16, 8), (20, 0), (30, 0)])
def test_a_learner_of_draws_is_behind_by_what_its_ratio_has_not_paid_for(samples, behind):
    kept = {"learning_starts": 20, "replay_ratio": 0.5, "capacity": 1000}
    experience, scoreboard, board = make(algorithm="iqn", batch_size=4, experience=kept)
    play(experience, 60)
    scoreboard.learn("agent_0")[Learn.SAMPLES] = samples
    assert record(board).policies["agent_0"].behind == behind


def test_a_learner_without_a_ratio_is_behind_by_nothing_that_can_be_told():
    experience, _, board = make(algorithm="dqn", experience={"replay_ratio": None})
    play(experience, 60)
    assert record(board).policies["agent_0"].behind is None


def test_the_status_tells_it(tmp_path):
    experience, _, board = make(**PPO)
    play(experience, 11)
    StatusFile(tmp_path / "status.json", Slots, "async").write(record(board), [], "")
    status = read_status(tmp_path / "status.json")
    status |= {"age": 0.0, "running": True, "checkpoints": [], "best": None}
    out = Console(file=io.StringIO(), width=200)
    print_status(tmp_path, status, out)
    lines = out.file.getvalue().splitlines()
    (i,) = (i for i, line in enumerate(lines) if line.startswith("policy"))
    heading, row = lines[i : i + 2]
    at = heading.index("behind") + len("behind")
    assert row[:at].split()[-1] == "11"


def test_a_status_tells_the_last_return_that_is_known(tmp_path):
    """Most seconds of a slow game see no episode end."""
    _, scoreboard, board = make(**PPO)
    status = StatusFile(tmp_path / "status.json", Slots, "async")

    def told():
        return read_status(tmp_path / "status.json")["policies"]["agent_0"]["mean_return"]

    status.write(record(board), [], "")
    assert told() is None
    row = scoreboard.policy("agent_0")
    row[[Policy.EPISODES, Policy.RETURN_SUM]] = 2, 6.0
    status.note_returns(record(board))
    row[[Policy.EPISODES, Policy.RETURN_SUM]] = 0, 0.0
    assert record(board).policies["agent_0"].mean_return is None
    status.write(record(board), [], "")
    assert told() == 3.0
