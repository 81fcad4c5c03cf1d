"""Pictures in observations: their axes, and those that are parts of a dictionary."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

import remuda
from bright_halves import BrightHalf
from refusals import refuses
from remuda.config import load_config
from remuda.envs.adapters.spaces import observation_converter
from remuda.errors import ConfigError, ContractError
from remuda.policies.compatibility import space_notes
from remuda.policies.networks.images import guess_layout
from remuda.policies.networks.layers import scaled
from remuda.policies.stack import ParameterStack
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec
from remuda.ui.terminal.live import PlainView

PIXELS = spaces.Box(0, 255, (8, 9, 3), np.uint8)
HEALTH = spaces.Box(0, 1, (2,), np.float32)
GREY = spaces.Box(0, 255, (6, 7), np.uint8)
DICT = spaces.Dict(health=HEALTH, picture=PIXELS, where=spaces.Discrete(3))
TWO = spaces.Dict(a=PIXELS, b=spaces.Tuple([HEALTH, GREY]))


def spec_of(space, convolutions=([4, 3, 1],), algorithm="ppo", n_frames=1, agent=(), **network):
    policy = {
        "algorithm": algorithm,
        "n_frames": n_frames,
        "network": {"convolutions": convolutions, "hidden": [8], **network},
    }
    config = load_config({"policy": policy})
    (spec,) = policy_specs(
        config,
        [AgentSpec("a", observation_converter(space).space, spaces.Discrete(2), **dict(agent))],
    )
    return spec


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((13, 13, 5), "hwc"),  # MAgent2
        ((8, 8, 111), "hwc"),  # chess
        ((19, 19, 17), "hwc"),  # go
        ((5, 4, 26), "hwc"),  # Overcooked
        ((3, 3, 2), "hwc"),  # tic-tac-toe
        ((6, 7, 2), "hwc"),  # connect four
        ((7, 7, 20), "hwc"),  # MiniGrid, one-hot
        ((210, 160, 3), "hwc"),  # Atari
        ((84, 84, 4), "hwc"),
        ((4, 84, 84), "chw"),
        ((2, 6, 7), "chw"),
        ((11, 5, 5), "chw"),
        ((3, 3, 3), ""),
        ((5, 6, 7), ""),
    ],
)
def test_height_and_width_are_the_sides_that_are_most_alike(shape, layout):
    assert guess_layout(shape, False).layout == layout
    if not layout:
        with refuses(ConfigError, "policy.network.layout"):
            spec_of(spaces.Box(0, 1, shape, np.float32)).network()
        return
    network = {"convolutions": ([4, 2, 1],)}
    image = spec_of(spaces.Box(0, 1, shape, np.float32), **network).pictures[0]
    sides = shape if layout == "chw" else (shape[2], *shape[:2])
    assert (image.channels, image.height, image.width) == sides


def test_colours_tell_the_layout_of_pixels():
    assert guess_layout((3, 4, 5), True) == ("chw", True)
    assert guess_layout((5, 5, 3), True) == ("hwc", True)
    assert guess_layout((3, 3, 3), True).layout == ""
    assert guess_layout((210, 160, 3), True) == ("hwc", True)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 3, 5), (4, 4, 12), (2, 3, 3)])
def test_equal_sides_of_a_small_board_of_bytes_are_not_its_colours(shape):
    """A board of 3 x 3 in bytes is no picture of three colours, and the run reports the guess."""
    board = spec_of(spaces.Box(0, 255, shape, np.uint8), [[4, 2, 1]])
    assert board.pictures[0].channels_last == (shape[0] == shape[1])
    assert "if that is wrong" in space_notes([board])[0]


def test_a_board_beside_an_action_mask_keeps_its_axes():
    board, mask = spaces.Box(0, 1, (8, 8, 111), np.float32), spaces.MultiBinary(2)
    (image,) = spec_of(spaces.Dict(observation=board, action_mask=mask)).pictures
    assert (image.channels, image.height, image.width) == (111, 8, 8)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_stacked_grey_frames_are_channels(kind):
    (image,) = spec_of(spaces.Box(0, 255, (9, 8), kind), n_frames=4).pictures
    assert (image.frames, image.channels, image.height, image.width) == (4, 1, 9, 8)
    network = spec_of(spaces.Box(0, 255, (9, 8), kind), n_frames=4).network()
    assert next(shape for name, shape in network.shapes.items() if "conv0.weight" in name)[1] == 4


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_a_layout_that_is_set_or_declared_is_taken(layout):
    cube, other = spaces.Box(0, 1, (3, 4, 3), np.float32), "chw" if layout == "hwc" else "hwc"
    for found in (
        spec_of(cube, layout=layout, agent={"layout": other}),
        spec_of(cube, agent={"layout": layout}),
    ):
        assert found.pictures[0].channels_last == (layout == "hwc")
        assert not space_notes([found])


def test_guesses_and_pixels_without_convolutions_are_told():
    board = spec_of(spaces.Box(0, 1, (8, 8, 111), np.float32))
    assert "8 x 8 x 111 is read as height x width x channels" in space_notes([board])[0]
    assert not space_notes([spec_of(PIXELS)])
    large = spaces.Dict(a=spaces.Box(0, 255, (84, 84), np.uint8), b=HEALTH)
    assert "28,224 pixels" in space_notes([spec_of(large, (), n_frames=4)])[0]
    assert not space_notes([spec_of(large, ([4, 8, 4],))])


def test_convolutions_without_a_picture_are_refused():
    with refuses(ContractError):
        spec_of(spaces.Dict(a=HEALTH, b=spaces.Discrete(3))).network()


def by_hand(tower, weights, frames):
    """Features of one picture [B, n_frames, H, W, C], by torch's own convolution."""
    pixels = torch.from_numpy(frames).float().movedim(4, 2).flatten(1, 2)
    weight, bias = (weights[f"{tower}_conv0.{name}"][0] for name in ("weight", "bias"))
    return torch.nn.functional.conv2d(pixels, weight, bias[0]).relu().flatten(1)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "iqn"])
@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("space", [DICT, TWO, spaces.Dict(b=GREY)], ids=["one", "two", "grey"])
def test_pictures_in_a_dictionary_are_scaled_and_convolved(space, n_frames, algorithm):
    spec = spec_of(space, algorithm=algorithm, n_frames=n_frames, activation="relu")
    sight = observation_converter(space)
    space.seed(0)
    samples = [[space.sample() for _ in range(n_frames)] for _ in range(5)]
    seen = np.zeros((5, n_frames, *sight.space.shape), sight.space.dtype)
    for i, j in np.ndindex(5, n_frames):
        sight.write(samples[i][j], seen[i, j])
    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    network.initialise(stack.parameters, torch.Generator().manual_seed(0))
    weights = {name: values.detach() for name, values in stack.parameters.items()}
    inputs = scaled(torch.from_numpy(seen).flatten(1)[None], spec.scale)
    assert inputs.max() <= 1.0
    tower = next(name for name in weights if "conv0" in name).partition("_conv0")[0]
    tower = tower.removesuffix("_picture0")
    (features,) = network.encoder.features(tower, weights, inputs)
    expected, others = [], np.ones(seen.shape[2], np.bool_)
    for i, picture in enumerate(spec.pictures):
        others[picture.start : picture.end] = False
        image, part = picture, seen[..., picture.start : picture.end] / 255
        size = (5, n_frames, image.height, image.width, image.channels)
        name = f"{tower}_picture{i}" if f"{tower}_picture0_conv0.weight" in weights else tower
        expected.append(by_hand(name, weights, part.reshape(size)))
    pieces = np.split(seen, np.flatnonzero(np.diff(others)) + 1, axis=2)
    kept = [others[p] for p in np.cumsum([0, *(piece.shape[2] for piece in pieces)])[:-1]]
    numbers = [piece.reshape(5, -1) for piece, keep in zip(pieces, kept, strict=True) if keep]
    expected = torch.cat([*map(torch.from_numpy, numbers), *expected], 1)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)


class Spot(BrightHalf):
    observation_space = spaces.Dict(picture=spaces.Box(0, 255, (6, 6, 3), np.uint8), health=HEALTH)

    def shown(self, half):
        picture = np.zeros((6, 6, 3), np.uint8)
        picture[:, 3 * half : 3 * half + 3] = 255
        return {"picture": picture, "health": self.np_random.random(2, np.float32)}


@pytest.mark.slow_cases("dqn", "iqn")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "iqn"])
def test_what_a_picture_in_a_dictionary_shows_is_learned(algorithm, tmp_path):
    result = remuda.train(
        Spot,
        env={"num_envs": 16},
        policy={
            "algorithm": algorithm,
            "network": {"convolutions": [[4, 3, 1]], "hidden": [16], "activation": "relu"},
            "learning_rate": 3e-3,
            "experience": {"segment_length": 2, "learning_starts": 64},
            **({} if algorithm == "ppo" else {"batch_size": 32}),
        },
        schedule="sequential",
        run={"turns": 2500, "directory": tmp_path / "run", "evaluate_episodes": 100},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    assert result.evaluation.mean(0) > 0.9
    policy, env = remuda.load(result)["agent_0"], Spot()
    observation, _ = env.reset(seed=1)
    env.step(policy.act(observation))


class Bare(Spot):
    """Shows the same pictures, not in a dictionary."""

    observation_space = Spot.observation_space["picture"]

    def shown(self, half):
        return super().shown(half)["picture"]


class Held(Bare):
    observation_space = spaces.Dict(picture=Bare.observation_space)

    def shown(self, half):
        return {"picture": super().shown(half)}


@pytest.mark.slow_cases("dqn-1", "iqn-1", "dqn-2", "iqn-2")
@pytest.mark.parametrize("n_frames", [1, 2])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "iqn"])
def test_a_picture_in_a_dictionary_is_learned_from_as_a_bare_one(algorithm, n_frames, tmp_path):
    """Both are bytes in the ring, and the weights after training are equal bit for bit."""
    policies = []
    for game in (Bare, Held):
        run = remuda.train(
            game,
            env={"num_envs": 4},
            policy={
                "algorithm": algorithm,
                "n_frames": n_frames,
                "network": {"convolutions": [[4, 3, 1]], "hidden": [16]},
                "experience": {"segment_length": 2, "learning_starts": 64},
            },
            schedule="sequential",
            run={"turns": 600, "directory": tmp_path / game.__name__, "evaluate_episodes": 0},
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
        )
        policies.append(remuda.load(run)["agent_0"])
    bare, held = (policy.weights() for policy in policies)
    assert policies[0].learner_step > 0
    assert all((bare[name] == held[name]).all() for name in bare | held)
    observation, _ = Held().reset(seed=0)
    assert policies[1].flatten(observation).dtype == np.uint8
    assert policies[1].act(observation) == policies[0].act(observation["picture"])
