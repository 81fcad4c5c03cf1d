"""Users' JAX environments: their time limits, observations and random keys, and their faults."""

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.registry import make_env, name_game
from remuda.envs.scripted import room_for
from remuda.errors import ConfigError, ContractError, RemudaError

jax = pytest.importorskip("jax")
jnp = jax.numpy
jax_games = pytest.importorskip("jax_games")
Meeting = jax_games.Meeting


def changed(change):
    """A meeting whose step returns what `change` makes of its results."""

    class Changed(Meeting):
        def step_env(self, key, state, actions):
            return change(*super().step_env(key, state, actions))

    return Changed


def observing(get_obs, space=None):
    """A meeting that agents observe otherwise."""

    class Observing(Meeting):
        def __init__(self):
            super().__init__()
            if space is not None:
                self.observation_spaces = dict.fromkeys(self.agents, space)

        def get_obs(self, state):
            return get_obs(state)

    return Observing


def started(game, copies=2):
    env = make_env(name_game(game), copies)
    env.reset(np.arange(copies), np.ones(copies, bool))
    return env


def observed(env, agent=0):
    out = room_for(env, agent)
    env.observe(agent, out)
    return out


def turn(env):
    env.begin_turn()
    for agent in range(env.num_agents):
        env.act(agent, np.ones(env.num_envs, np.int64))
    return env.end_turn()


class OfTheClass(Meeting):
    max_steps = 3

    def __init__(self):
        super().__init__()
        del self.max_steps


class OfAProperty(Meeting):
    def __init__(self):
        super().__init__()
        del self.__dict__["max_steps"]

    def __setattr__(self, name, value):
        self.__dict__[name] = value

    @property
    def max_steps(self):
        return 3


@pytest.mark.parametrize("game", [OfTheClass, OfAProperty])
def test_a_limit_may_be_an_attribute_of_the_class_or_a_property(game):
    env = started(game, 8)
    for _ in range(3):
        result = turn(env)
    assert (result.truncated.any(1) | ~env.active.any(1)).all()
    assert result.truncated.any()


def test_integers_outside_of_their_bounds_are_not_cut_to_bytes():
    """Space and values disagree, as in some worlds of JaxMARL."""
    space = jax_games.Box(0, 3, (2,), jnp.int32)
    for shift in (-300, 300):
        env = started(
            observing(lambda s, by=shift: dict.fromkeys(("agent_0", "agent_1"), s.at + by), space)
        )
        plain = started(observing(lambda s: dict.fromkeys(("agent_0", "agent_1"), s.at), space))
        assert (observed(env) == observed(plain) + shift).all()


@pytest.mark.parametrize("is_part", [False, True])
def test_a_discrete_observation_outside_of_its_space_is_refused(is_part):
    """One of the values 0 to 3; the positions are 0 to 8."""
    both, space = ("agent_0", "agent_1"), jax_games.Discrete(4)

    def game(shift):
        def get_obs(state):
            own = jnp.minimum(state.at[0], 3) + shift
            return {
                key: {"bytes": jnp.uint8(state.at), "one": own} if is_part else own for key in both
            }

        return observing(get_obs, {"one": space} if is_part else space)

    assert (observed(started(game(0)))[:, -4:].sum(1) == 1).all()
    for shift in (-4, 4):
        with refuses(ContractError, "agent_0", "Discrete(4)"):
            observed(started(game(shift)))


def test_short_floats_are_observed():
    both = ("agent_0", "agent_1")
    env = started(observing(lambda s: dict.fromkeys(both, jnp.bfloat16(s.at) / 2)))
    plain = started(observing(lambda s: dict.fromkeys(both, s.at)))
    assert (observed(env) == observed(plain) / 2).all()


class Drawing(Meeting):
    """A meeting whose state has a random key of JAX's newer kind, which moves its agents."""

    def reset(self, key):
        observations, state = super().reset(key)
        return observations, (state, jax.random.wrap_key_data(key))

    def step_env(self, key, state, actions):
        own, drawing = jax.random.split(state[1])
        moves = jax.random.randint(drawing, (2,), 0, 3)
        actions = {each: moves[i] for i, each in enumerate(self.agents)}
        observations, places, *results = super().step_env(key, state[0], actions)
        return observations, (places, own), *results

    def render(self, state):
        words = jax.random.key_data(state[1])
        return np.full((2, 2, 3), int(words[1]) % 256)


def test_a_state_may_hold_random_keys():
    env, other = started(Drawing), started(Drawing)
    for _ in range(2):
        turn(env)
    other.restore(env.state())
    assert (env.render() == other.render()).all()
    for _ in range(3):
        turn(env), turn(other)
        assert (observed(env) == observed(other)).all()
        assert (env.active == other.active).all()


class Auto(jax_games.MultiAgentEnv):
    """Only JaxMARL's `step` is written, which resets by itself."""

    def __init__(self):
        super().__init__(2)

    def reset(self, key):
        raise AssertionError

    def step(self, key, state, actions):
        raise AssertionError


class Late(Meeting):
    def __init__(self):
        super().__init__(max_steps="six")


class Masking(Meeting):
    def get_avail_actions(self, state):
        return dict.fromkeys(self.agents, jnp.ones(4, bool))


FAULTS = {
    "no end of all": (changed(lambda o, s, r, d, i: (o, s, r, {}, i)), "'__all__'"),
    "no reward": (changed(lambda o, s, r, d, i: (o, s, {"agent_0": 1.0}, d, i)), "agent_1"),
    "one reward": (changed(lambda o, s, r, d, i: (o, s, jnp.float32(1), d, i)), "rewards"),
    "rewards": (
        changed(lambda o, s, r, d, i: (o, s, dict.fromkeys(r, jnp.ones(3)), d, i)),
        "(3,)",
    ),
    "observation": (
        changed(lambda o, s, r, d, i: (dict.fromkeys(o, jnp.ones(3)), s, r, d, i)),
        "agent_0",
    ),
    "observed names": (observing(lambda _: {"one": jnp.ones(2), "two": jnp.ones(2)}), "agent_0"),
    "observed agents": (observing(lambda _: jnp.ones((3, 2))), "(3, 2)"),
    "state": (changed(lambda o, s, r, d, i: (o, (s.at, s.step), r, d, i)), "state"),
    "shape of state": (
        changed(lambda o, s, r, d, i: (o, s.replace(at=s.at[:1]), r, d, i)),
        "state.at",
    ),
    "shaped reward": (
        changed(lambda o, s, r, d, i: (o, s, r, d, {"shaped_reward": 1.0})),
        "shaped_reward",
    ),
    "mask": (Masking, "(4,)"),
    "no step": (Auto, "step_env"),
    "limit": (Late, "max_steps"),
}


def logged():
    from jaxmarl.wrappers.baselines import LogWrapper

    return LogWrapper(Meeting())


def test_wrappers_of_jaxmarl_are_refused():
    """They delegate attributes, so they look like environments of PettingZoo."""
    with refuses(ConfigError, "LogWrapper", "MultiAgentEnv"):
        make_env(name_game(logged), 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_the_interface_is_named(fault):
    game, named = FAULTS[fault]
    with refuses(ConfigError if game is Late else ContractError, named) as info:
        make_env(name_game(game), 2)
    assert isinstance(info.value, RemudaError)
    assert "\n" not in str(info.value)
