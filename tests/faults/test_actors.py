"""Several actors: each plays its own copies, and one that dies holds up nobody."""

import pytest

from assembled import assemble
from faults.runs import checkpoint, fail, restarts, run_until, small_config, start
from refusals import refuses
from remuda.errors import ConfigError
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn, Play, Policy
from support import Tape

PPO = {
    "algorithm": "ppo",
    "network": {"hidden": (16,)},
    "ppo": {"rollout_length": 32},
    "experience": {"segment_length": 4, "wait_limit": 60.0},
    "publish": {"every": 1},
}


@pytest.mark.process
@pytest.mark.slow_cases("ppo-kill -9")
@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        pytest.param(PPO, "kill -9", id="ppo-kill -9"),
        pytest.param({}, "exception", id="iqn-exception", marks=pytest.mark.slow),
        pytest.param(PPO, "exception", id="ppo-exception", marks=pytest.mark.slow),
        pytest.param({}, "kill -9", id="iqn-kill -9", marks=pytest.mark.slow),
    ],
)
def test_the_others_go_on_while_one_is_away(policy, fault, tmp_path):
    ring, runtime = start(tmp_path, policy=policy, actor={"processes": 2}, env={"num_envs": 3})
    try:
        board, learn = ring.scoreboard, ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: learn[Learn.UPDATES] > 10)
        run_until(runtime, lambda: board.play(1)[Play.TURNS] > 100)
        before = board.play(0)[Play.TURNS], learn[Learn.UPDATES]
        fail(runtime, "actor-1", fault)
        assert board.play(0)[Play.TURNS] > before[0] + 100, "the other actor stood still"
        assert learn[Learn.UPDATES] > before[1] + 2, "the learner stood still"
        back = board.play(1)[Play.TURNS]
        run_until(runtime, lambda: board.play(1)[Play.TURNS] > back + 100)
        assert restarts(runtime, "actor-0") == 0
        assert board.acted("agent_0")[Policy.EPISODES] > 0
        # However busy the machine: steps are lost only where a learner took nothing for its limit.
        lost = learn[Learn.LOST]
        assert not lost or board.played()[Play.FORCED] > 0
        if not policy:
            assert board.played()[Play.WAITS] == 0
        acted = board.played()[Play.AGENT_STEPS]
        assert abs(acted - 2 * board.turns()) <= 12  # it goes on while we look
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_actors(tmp_path):
    ring, runtime = start(tmp_path, policy=PPO, actor={"processes": 2}, env={"num_envs": 4})
    try:
        learn = ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: learn[Learn.UPDATES] > 10)
        checkpoint(runtime, tmp_path)
        state = ring.state()
    finally:
        runtime.stop()
    config = small_config(policy=PPO, actor={"processes": 3}, env={"num_envs": 4})
    specs = policy_specs(config, Tape().agents)
    more = assemble(config, specs, make_layout(config, len(specs)))
    more.scoreboard.restore(state["scoreboard"])
    more.experience["agent_0"].restore(None, state["written"]["agent_0"])
    assert more.scoreboard.turns() == state["scoreboard"]["play"][Play.TURNS]
    assert more.experience["agent_0"].written == state["written"]["agent_0"] > 0
    assert len(more.experience["agent_0"].rings) == 3


def test_too_many_actors_are_refused():
    for tree in (
        {"env": {"num_envs": 2}},
        {"env": {"num_envs": 4}, "schedule": "lockstep"},
    ):
        config = small_config(actor={"processes": 3}, **tree)
        with refuses(ConfigError):
            make_layout(config, 2)
