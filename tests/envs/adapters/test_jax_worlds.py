"""Worlds of JaxMARL, and users' JAX environments, as games of Remuda."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import remuda
from refusals import refuses
from remuda.envs.adapters.jax_library import import_jax, make_world
from remuda.envs.adapters.libraries import LIBRARIES
from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import find_game, make_env, name_game
from remuda.envs.scripted import masks_of, room_for, sample_actions
from remuda.errors import ConfigError, ContractError, UsageError

jax = pytest.importorskip("jax")
jax_games = pytest.importorskip("jax_games")
HERE = os.path.dirname(remuda.__path__[0])


class TestSpread(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:MPE_simple_spread_v3", num_envs)


@pytest.mark.slow
class TestKitchen(VectorEnvContract):
    option_values = {"shaped_reward": 3.0}  # noqa: RUF012

    def make(self, num_envs):
        return make_env("jaxmarl:overcooked", num_envs, layout="cramped_room", max_steps=30)


@pytest.mark.slow
class TestBattle(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:HeuristicEnemySMAX", num_envs, scenario="3m")


@pytest.mark.slow
class TestCoins(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:coin_game", num_envs)


@pytest.mark.slow
class TestContinuousTag(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:MPE_simple_tag_v3", num_envs, action_type="Continuous")


@pytest.mark.slow
class TestStorm(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:storm_2p", num_envs, num_inner_steps=20)


class TestMeeting(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jax_games:Meeting", num_envs)


class TestCounting(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jax_games:Counting", num_envs)


def started(name, seeds, **options):
    env = make_env(name, len(seeds), **options)
    env.reset(np.asarray(seeds), np.ones(len(seeds), bool))
    return env


def observed(env, agent):
    out = room_for(env, agent)
    env.observe(agent, out)
    return out


def drawn(env, rng):
    """Allowed actions of all agents."""
    return [
        sample_actions(spec.action_space, env.num_envs, rng, masks_of(env, agent))
        for agent, spec in enumerate(env.agents)
    ]


def turn(env, actions):
    """Play a turn; return copies of rewards, terminated, truncated, and metrics."""
    env.begin_turn()
    for agent, own in enumerate(actions):
        env.act(agent, np.asarray(own))
    result = env.end_turn()
    ends = result.terminated.copy(), result.truncated.copy()
    return result.rewards.copy(), *ends, {k: v.copy() for k, v in result.info.items()}


class Direct:
    """One copy, played by JaxMARL's functions with the keys that the adapter uses."""

    def __init__(self, world, seed):
        self.world = world
        self.key, own = jax.random.split(jax.random.PRNGKey(seed))
        self.observations, self.state = world.reset(own)

    def step(self, actions):
        self.key, own = jax.random.split(self.key)
        chosen = {each: np.asarray(a) for each, a in zip(self.world.agents, actions, strict=True)}
        self.observations, self.state, *results = self.world.step_env(own, self.state, chosen)
        return results


@pytest.mark.slow_cases("overcooked", "SMAX", "HeuristicEnemySMAX", "coin_game")
@pytest.mark.parametrize(
    ("name", "options", "turns"),
    [
        ("MPE_simple_spread_v3", {}, 26),
        ("overcooked", {"max_steps": 60}, 60),
        ("SMAX", {"scenario": "3m"}, 101),
        ("HeuristicEnemySMAX", {"scenario": "3m"}, 100),
        ("coin_game", {}, 100),
    ],
    ids=["spread", "overcooked", "SMAX", "HeuristicEnemySMAX", "coin_game"],
)
def test_a_copy_plays_as_jaxmarl_does(name, options, turns):
    env = started(f"jaxmarl:{name}", [3, 7, 11], **options)
    direct = Direct(make_world(name, options), 7)
    step = jax.jit(direct.world.step_env)
    direct.world.step_env = step
    rng, playing = np.random.default_rng(0), np.ones(env.num_agents, bool)
    for _ in range(turns):
        for agent, key in enumerate(direct.world.agents):
            seen = observed(env, agent)[1]
            np.testing.assert_allclose(seen, direct.observations[key], rtol=1e-5, atol=1e-5)
            if env.agents[agent].masked:
                allowed = direct.world.get_avail_actions(direct.state)[key]
                assert (masks_of(env, agent)[1] == np.asarray(allowed, bool)).all()
        actions = drawn(env, rng)
        rewards, terminated, truncated, metrics = turn(env, actions)
        expected, dones, _ = direct.step([own[1] for own in actions])
        over = bool(dones["__all__"])
        for agent, key in enumerate(direct.world.agents):
            assert rewards[1, agent] == pytest.approx(float(expected[key]), rel=1e-5, abs=1e-5)
            assert (terminated[1, agent] or truncated[1, agent]) == over
            assert not (truncated[1, agent] and not playing[agent])
            playing[agent] &= not (over or bool(dones[key]))
            assert env.active[1, agent] == playing[agent]
        if over:
            if name == "coin_game":
                state = direct.state
                own = int(state.red_coop.sum() + state.blue_coop.sum())
                assert metrics["own_coins"][1] == own > 0
            if "win_rate" in metrics:
                alive = np.asarray(getattr(direct.state, "state", direct.state).unit_alive)
                assert metrics["win_rate"][1] == (alive[:3].any() and not alive[3:].any())
            return
        env.reset(np.full(3, 5), ~env.active.any(1))
    raise AssertionError("no episode ended")


def test_an_episode_depends_on_its_seed_alone():
    """Restarted alone, in a small batch, or with all others, a copy starts the same episode."""
    name, seed = "jaxmarl:MPE_simple_spread_v3", 2**40 + 5
    alone = observed(started(name, [seed]), 1)[0]
    env = started(name, np.arange(16))
    for copies in ([3], [3, 9, 12], range(16)):
        mask = np.zeros(16, bool)
        mask[list(copies)] = True
        before = observed(env, 1)
        env.reset(np.where(mask, seed, -1), mask)
        after = observed(env, 1)
        assert (after[mask] == alone).all()
        assert (after[~mask] == before[~mask]).all()
    assert (observed(started(name, [seed + 2**32]), 1)[0] != alone).any()


def test_a_time_limit_truncates_and_shows_the_final_observation():
    env = started("jaxmarl:MPE_simple_spread_v3", [1, 2])
    for _ in range(25):
        before = observed(env, 0)
        _, terminated, truncated, _ = turn(env, [[1, 1]] * 3)
        assert not terminated.any()
        assert not truncated.any()
    _, terminated, truncated, _ = turn(env, [[1, 1]] * 3)
    assert truncated.all()
    assert not terminated.any()
    assert not env.active.any()
    moved = observed(env, 0)[:, 2:4] - before[:, 2:4]  # the agent's place, two turns apart
    assert (np.abs(moved).max(1) < 0.5).all()


def test_the_rules_may_end_an_episode_at_its_limit():
    """The riddle lasts 6 steps; telling (action 2) ends it by the rules, also in the last step."""
    env = started("jaxmarl:switch_riddle", [1, 2])
    for _ in range(5):
        assert not turn(env, [[0, 0]] * 3)[1].any()
    _, terminated, truncated, _ = turn(env, [[0, 2]] * 3)
    assert terminated.tolist() == [[False] * 3, [True] * 3]
    assert truncated.tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize("game", [jax_games.Counting, jax_games.Meeting])
def test_a_user_s_limit_truncates(game):
    env = started(name_game(game), np.arange(12))
    assert set(env.notes) == set()
    limit, ends = (4, 1) if game is jax_games.Counting else (6, 0)
    stay = [np.full(12, 1 - ends)] * env.num_agents
    early = turn(env, stay)[1:3]
    for _ in range(limit - 2):
        early = turn(env, stay)[1:3]
        assert not early[1].any()
    playing = env.active[:, 0].copy()
    last = turn(env, [np.where(np.arange(12) < 6, ends, own) for own in stay])
    if game is jax_games.Counting:
        assert last[1][:6].all()  # terminated by the action, at the limit
        assert last[2][6:].all()
        assert last[0][:, 0].tolist() == [1.0] * 6 + [0.0] * 6
    else:
        assert (last[2][:, 0] == (playing & ~last[1][:, 0])).all()
        assert last[2].any()


@pytest.mark.slow
def test_units_that_die_are_paid_until_the_battle_ends():
    env = started("jaxmarl:HeuristicEnemySMAX", np.arange(16), scenario="3m")
    assert [spec.team for spec in env.agents] == ["ally"] * 3
    paid_dead, rng = 0, np.random.default_rng(0)
    for _ in range(40):
        dead = ~env.active
        rewards, terminated, truncated, _ = turn(env, drawn(env, rng))
        over = ~env.active.any(1)
        assert (rewards == rewards[:, :1]).all()  # the team's
        assert ((terminated | truncated) == over[:, None]).all()
        assert not truncated[dead].any()
        paid_dead += int((dead & (rewards > 0)).sum())
        env.reset(np.arange(16), over)
    assert paid_dead > 5


def test_a_done_agent_waits_for_the_others_and_keeps_its_rewards():
    """Agent 1 is done in its second turn, and only then; the limit of 4 truncates the others."""
    env = started("jax_games:Leaving", [1])
    found = [turn(env, [[1]] * 2) for _ in range(4)]
    assert [own[0].tolist() for own in found] == [[[1.0, 2.0]]] * 4
    assert [(own[1] | own[2]).any() for own in found] == [False] * 3 + [True]
    assert found[-1][1].tolist() == [[False, True]]
    assert found[-1][2].tolist() == [[True, False]]
    late = turn(env, [[1]] * 2)
    assert not any(part.any() for part in late[:3])


def test_a_grid_of_integers_stays_bytes_and_no_pixels():
    env = started("jaxmarl:overcooked", [1])
    space = env.agents[0].observation_space
    assert (space.shape, space.dtype) == ((4, 5, 26), np.uint8)
    assert (space.high < 255).all()  # with 255, networks would divide by 255
    assert env.agents[0].layout == "hwc"
    assert set(np.unique(observed(env, 0))) == {0, 1}


@pytest.mark.slow
def test_shaped_rewards_count_from_the_next_reset():
    rng = np.random.default_rng(0)
    plain = started("jaxmarl:overcooked", np.arange(64))
    shaped = started("jaxmarl:overcooked", np.arange(64), shaped_reward=0.5)
    changed = started("jaxmarl:overcooked", np.arange(64))
    assert changed.changeable_options == ("shaped_reward",)
    changed.set_option("shaped_reward", 2.0)
    found, half = [], []
    for _ in range(200):
        actions = rng.integers(0, 6, (2, 64))
        base, part, late = (turn(env, actions)[0] for env in (plain, shaped, changed))
        assert (late == base).all()
        found.append(base)
        half.append(part)
    assert not np.any(found)  # nothing was delivered
    assert set(np.unique(half)) >= {0.0, 1.5}  # half of an onion in a pot
    changed.reset(np.arange(64), np.ones(64, bool))
    shaped.reset(np.arange(64), np.ones(64, bool))
    total = np.zeros(2)
    for _ in range(200):
        actions = rng.integers(0, 6, (2, 64))
        total += [turn(env, actions)[0].sum() for env in (shaped, changed)]
    assert total[1] == pytest.approx(4.0 * total[0])
    assert total[0] > 0


@pytest.mark.slow
def test_deliveries_are_counted():
    """With a random start, agents may hold a soup, and deliver it even at random."""
    env = started("jaxmarl:overcooked", np.arange(64), random_reset=True, max_steps=60)
    rng, returns = np.random.default_rng(0), np.zeros(64)
    for _ in range(60):
        rewards, _, truncated, metrics = turn(env, drawn(env, rng))
        returns += rewards[:, 0]
    assert truncated.all()
    assert metrics["deliveries"].tolist() == (returns / 20.0).tolist()
    assert metrics["deliveries"].any()


@pytest.mark.slow
def test_parts_of_an_observation_are_flattened_in_order():
    name, options = "storm_2p", {"num_inner_steps": 20}
    env = started(f"jaxmarl:{name}", [7], **options)
    parts = {part.name: part for part in env.agents[0].observation_space.parts}
    assert {name: part.shape for name, part in parts.items()} == {
        "inventory": (6,),
        "observation": (5, 5, 10),
    }
    direct = Direct(make_world(name, options), 7)
    for agent in range(2):
        seen = observed(env, agent)[0]
        for key, part in parts.items():
            own = seen[part.start : part.start + part.size].reshape(part.shape)
            assert (own == np.asarray(direct.observations[agent][key])).all()


@pytest.mark.slow
def test_a_critic_observes_the_world_s_state():
    env = started("jaxmarl:SMAX", [7], scenario="3m")
    direct = Direct(make_world("SMAX", {"scenario": "3m"}), 7)
    state = np.zeros((1, *env.agents[0].state_space.shape), np.float32)
    env.observe_state(4, state)
    np.testing.assert_allclose(state[0], direct.observations["world_state"], rtol=1e-6)


def test_worlds_are_listed_without_jax():
    assert "jaxmarl:overcooked" in LIBRARIES["jaxmarl"].names()
    from jaxmarl.registration import registered_envs

    listed = {name.partition(":")[2] for name in LIBRARIES["jaxmarl"].names()}
    missing = set(registered_envs) - listed
    assert listed <= set(registered_envs)
    assert not any(name.startswith(("MPE", "storm", "over", "coin")) for name in missing)


@pytest.mark.process
def test_a_process_that_describes_imports_no_jax():
    code = (
        "import sys; from remuda.envs.description import EnvSpec;"
        "from remuda.envs.live_options import LiveEnvOptions;"
        "spec = EnvSpec.of('jaxmarl:overcooked', {'layout': 'coord_ring'});"
        "assert spec.agents[0].observation_space.shape == (5, 5, 26);"
        "LiveEnvOptions(spec).check('shaped_reward', 2.0, 0);"
        "assert not {'jax', 'jaxlib', 'jaxmarl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": HERE})


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("overcoked", {}, "overcooked"),
        ("overcooked", {"layout": "ring"}, "cramped_room"),
        ("SMAX", {"scenario": "4x"}, "2s3z"),
        ("MPE_simple_spread_v3", {"agents": 4}, "agents"),
        ("MPE_simple_spread_v3", {"max_stpes": 4}, "max_steps"),
        ("MPE_simple_spread_v3", {"num_agents": 0}, "num_agents"),
        ("MPE_simple_spread_v3", {"local_ratio": "all"}, "local_ratio"),
        ("overcooked", {"max_steps": "400"}, "max_steps"),
        ("overcooked", {"random_reset": 1}, "random_reset"),
        ("SMAX", {"scenario": 5}, "2s3z"),
        ("HeuristicEnemySMAX", {"atack_mode": "random"}, "attack_mode"),
        ("storm_2p", {"num_agents": 5}, "num_agents"),
        ("MPE_simple_spread_v3", {"action_type": "both"}, "both"),
        ("MPE_simple_spread_v3", {"shaped_reward": 1.0}, "shaped_reward"),
        ("overcooked", {"shaped_reward": "half"}, "shaped_reward"),
        ("LearnedPolicyEnemySMAX", {}, "policy"),
        ("MPE_simple_spread_v3", {"rad": [0.1] * 6}, "rad"),  # the world sets it
        ("MPE_simple_facmac_3a_v1", {"max_steps": 9}, "no such option"),
        ("coin_game", {"payoff_matrix": None}, "(2, 3)"),
        ("coin_game", {"num_outer_steps": 0}, "num_outer_steps"),
        ("overcooked", {"max_steps": 2**31}, "2,147,483,647"),
        ("overcooked", {"layout": None}, "cramped_room"),
        ("overcooked", {"layout": ["ring"]}, "cramped_room"),
        ("overcooked", {"layout": {"height": 3}}, "cramped_room"),
        ("storm_2p", {"payoff_matrix": [[3, 0], [5, 1]]}, "(2, 2, 2)"),
        ("storm_2p", {"payoff_matrix": [[[3, 0], [5, 1]], [[3, 5], [0, 0.5]]]}, "whole"),
        ("HeuristicEnemySMAX", {"unit_type_attacks": [1, [2]]}, "(6,)"),
    ],
)
def test_unknown_worlds_and_options_are_refused(name, options, named):
    with refuses(ConfigError, named):
        make_env(f"jaxmarl:{name}", 2, **options)


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("MPE_simple_tag_v3", {"num_good_agents": 1, "max_steps": 25}, "num_agents"),
        ("HeuristicEnemySMAX", {"attack_mode": "closest", "scenario": None}, "unit_type_attacks"),
        ("overcooked", {"layout": "cramped_room", "shaped_reward": 0.0}, "env"),
        ("coin_game", {"num_inner_steps": 10, "cnn": False}, "payoff_matrix"),
    ],
)
def test_a_world_s_own_options_are_shown(name, shown, hidden):
    options = make_env(f"jaxmarl:{name}", 1).options()
    assert shown.items() <= options.items()
    assert hidden not in options


def test_a_world_without_options_shows_none():
    assert make_env("jaxmarl:MPE_simple_facmac_3a_v1", 1).options() == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("HeuristicEnemySMAX", {"scenario": "3m", "won_battle_bonus": 2}),
        ("HeuristicEnemySMAX", {"scenario": "3m", "unit_type_attacks": [1, 2, 3, 4, 5, 6]}),
        ("storm_2p", {"payoff_matrix": [[[4, 0], [5, 1]], [[4, 5], [0, 1]]]}),
        ("hanabi", {"num_ranks": 3, "num_cards_of_rank": [3, 2, 1]}),
    ],
)
def test_integers_and_lists_are_taken_for_floats_and_arrays(name, options):
    """The description traces a step, which fails for an integer where a float is needed."""
    assert options.items() <= make_env(f"jaxmarl:{name}", 1, **options).options().items()


def test_a_missing_package_is_named(monkeypatch):
    with refuses(ConfigError, "brax"):
        make_env("jaxmarl:ant_4x2", 1)
    monkeypatch.setitem(sys.modules, "jax", None)
    with refuses(ConfigError, "pip install -e '.[jax]'"):
        import_jax()


def test_a_user_s_faults_are_named():
    with refuses(ConfigError, "Tuple"):
        make_env("jax_games:Odd", 1)
    with refuses(ContractError, "no step today"):
        make_env("jax_games:Broken", 1)
    with refuses(ConfigError, "env.wrappers"):
        find_game("jax_games:Meeting").make(1, **{"env.wrappers": ("growing:Undeclared",)})


@pytest.mark.parametrize("game", [jax_games.Vast, jax_games.Busy])
def test_more_copies_than_memory_are_refused(game):
    """The state of a copy of the one does not fit, and the work of a step of the other."""
    with refuses(UsageError, "memory"):
        observed(started(name_game(game), [1]), 0)


@pytest.mark.slow
def test_the_state_of_copies_is_part_of_a_run_s_memory():
    with refuses(ConfigError, "env.num_envs"):
        remuda.train("jaxmarl:overcooked", env={"num_envs": 10**9}, view="quiet")


@pytest.mark.process
@pytest.mark.slow
def test_schedules_and_resumed_runs_agree(tmp_path):
    """Bit for bit: all of a JAX world's state is saved, also that of its random numbers."""

    def weights(name, turns, **how):
        remuda.train(
            run={"turns": turns, "directory": tmp_path / name, "evaluate_episodes": 0},
            view="quiet",
            **how,
        )
        files = sorted((tmp_path / name / "weights").rglob("*.safetensors"))
        assert files
        return [load_file(file) for file in files]

    how = {
        "game": "jaxmarl:overcooked",
        "seed": 3,
        "env": {"num_envs": 4, "options": {"max_steps": 30, "shaped_reward": 1.0}},
        "policy": {
            "algorithm": "ppo",
            "network": {"hidden": [8], "convolutions": []},
            "ppo": {"rollout_length": 32},
        },
        "checkpoint": {"evaluate_episodes": 0},
    }
    one = weights("one", 800, schedule="sequential", **how)
    other = weights("other", 800, schedule="lockstep", **how)
    weights("resumed", 400, schedule="sequential", **how)
    resumed = weights("resumed", 800, resume=tmp_path / "resumed")
    for found in (other, resumed):
        for own, expected in zip(found, one, strict=True):
            assert own.keys() == expected.keys()
            assert all(np.array_equal(own[key], expected[key]) for key in own)


SETTINGS = {
    "ppo": ("MPE_simple_spread_v3", {}, {"algorithm": "ppo", "network": {"hidden": [16]}}),
    "mappo": (
        "HeuristicEnemySMAX",
        {"scenario": "3m"},
        {"algorithm": "mappo", "network": {"hidden": [16]}},
    ),
    "sac": (
        "MPE_simple_spread_v3",
        {"action_type": "Continuous"},
        {"algorithm": "sac", "network": {"hidden": [16]}},
    ),
    "recurrent": (
        "overcooked",
        {"max_steps": 40},
        {"algorithm": "ppo", "network": {"convolutions": [], "hidden": [16], "recurrent": 16}},
    ),
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_trains_in_processes(name, tmp_path):
    world, options, policy = SETTINGS[name]
    result = remuda.train(
        f"jaxmarl:{world}",
        env={"num_envs": 8, "options": options},
        policy=policy,
        run={"turns": 3_000, "directory": tmp_path / "run", "evaluate_episodes": 0},
        checkpoint={"evaluate_episodes": 0},
        view="quiet",
    )
    assert result.finished
    assert all(own.updates > 0 for own in result.record.policies.values())
