"""Networks of the user's own: found, made, drawn and brought through for K policies at once."""

import logging
import threading

import numpy as np
import pytest
import torch
from gymnasium import spaces

import remuda
from bright_halves import BrightHalf
from policies import own_networks
from refusals import refuses
from remuda.config import PolicyConfig, load_config, overlay
from remuda.config.unused_settings import unused_settings
from remuda.envs.adapters.spaces import observation_converter
from remuda.errors import ConfigError, ContractError
from remuda.policies.actions import DiscreteActions
from remuda.policies.networks.lifted import LiftedModule, lifted
from remuda.policies.networks.vmap_rules import lstm_step
from remuda.policies.spec import PolicySpec, first_weights
from remuda.policies.stack import ParameterStack
from remuda.population.specs import policy_specs
from remuda.system.rng import torch_rng
from remuda.types import AgentSpec
from remuda.ui.terminal.live import PlainView

OWN = "policies.own_networks"
ALGORITHMS = ("ppo", "dqn", "iqn")


def spec_of(algorithm, module="small", shape=(5,), name="a", **network):
    tree = {"algorithm": algorithm, "n_frames": 1}
    config = PolicyConfig.model_validate(
        tree | {"network": {"module": f"{OWN}:{module}"} | network}
    )
    return PolicySpec(name, config, shape, "float32", DiscreteActions((3,)))


def stacked(spec, policies):
    network = spec.network()
    stack = ParameterStack(network.shapes, policies)
    for k in range(policies):
        network.initialise(stack.of(k), torch_rng(0, "weights", k))
    return network, stack


@pytest.mark.parametrize("module", ["small", "Wide", "Branching", "lazy", "Attends"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_pass_of_several_is_that_of_each_alone(algorithm, module):
    network, stack = stacked(spec_of(algorithm, module), 3)
    inputs = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = network.outputs(network.acting(stack.parameters, None), inputs)
        for k in range(3):
            alone = network.outputs(network.acting(stack.of(k), None), inputs[k : k + 1])
            torch.testing.assert_close(together[k : k + 1], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_computes_what_the_module_computes(algorithm):
    spec = spec_of(algorithm, "Wide")
    network, stack = stacked(spec, 1)
    weights = network.acting(stack.parameters, None)
    from policies.own_networks import Wide

    plain = Wide((5,))
    tower = "hidden" if spec.config.network.serves_both else "policy_hidden"
    plain.load_state_dict(
        {name: stack.parameters[f"{tower}_module.{name}"][0] for name in plain.state_dict()}
    )
    inputs = torch.randn(1, 6, 5)
    with torch.no_grad():
        found = network.encoder.features(tower, weights, inputs)
        torch.testing.assert_close(found[0], plain(inputs[0]))


@pytest.mark.parametrize("module", ["Remembers", "Gated", "Long"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_recurrent_module_steps_with_a_state_of_its_own(algorithm, module):
    """Of three policies at once as of each alone, and along sequences as step by step."""
    spec = spec_of(algorithm, module)
    network, stack = stacked(spec, 3)
    size = {"Remembers": 7, "Gated": 16, "Long": 24}[module]
    assert (spec.memory, network.memory) == (size, size)
    g = torch.Generator().manual_seed(1)
    inputs, state = torch.randn(3, 2, 4, 5, generator=g), torch.randn(3, 2, size, generator=g)
    with torch.no_grad():
        weights = network.acting(stack.parameters, None)
        if algorithm == "ppo":
            along, _ = network.policy_and_value(stack.parameters, inputs.flatten(1, 2), state)
        else:
            found = network.unroll_features(weights, inputs.flatten(1, 2), state)
            along = network.values_of(weights, found)
        before = state
        for t in range(4):
            outputs, after = network.step(weights, inputs[:, :, t], before)
            torch.testing.assert_close(along.view(3, 2, 4, -1)[:, :, t], outputs)
            for k in range(3):
                alone = network.acting(stack.of(k), None)
                one, kept = network.step(alone, inputs[k : k + 1, :, t], before[k : k + 1])
                torch.testing.assert_close(one[0], outputs[k], rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(kept[0], after[k], rtol=1e-5, atol=1e-6)
            assert not torch.equal(after, before)
            before = after


@pytest.mark.parametrize(
    "options",
    [
        {"network": {"recurrent": 3}},
        {"network": {"shared": False}},
        {"ppo": {"anchor_cost": 0.1}},
        {"learning_mode": "off_policy", "experience": {"group": "us"}},
    ],
)
def test_where_a_recurrent_module_cannot_work_is_told(options):
    own = {"network": {"module": f"{OWN}:Remembers"}, "algorithm": "ppo"}
    config = PolicyConfig.model_validate(overlay(own, options))
    spec = PolicySpec("a", config, (5,), "float32", DiscreteActions((3,)))
    with refuses(ConfigError):
        spec.network()


@pytest.mark.parametrize("algorithm", ["iqn", "dqn"])
def test_a_recurrent_module_of_values_does_not_ask_for_what_they_do_not_read(algorithm):
    """Red before: it was refused where `policy` says `shared false`, for PPO among others."""
    own = {"network": {"module": f"{OWN}:Remembers", "shared": False}, "algorithm": algorithm}
    config = PolicyConfig.model_validate(own)
    assert PolicySpec("a", config, (5,), "float32", DiscreteActions((3,))).network().memory


@pytest.mark.parametrize(("length", "fits"), [(100, True), (101, False)])
def test_a_recurrent_module_whose_segments_are_longer_than_the_actor_may_be_ahead(length, fits):
    """As with `network.recurrent`, the actor and the learner would wait for each other."""
    experience = {"on_full": "wait", "capacity": 100, "learning_starts": 64, "replay_ratio": 1.0}
    experience["segment_length"] = length
    network = {"module": f"{OWN}:Remembers"}
    own = {"network": network, "algorithm": "dqn", "experience": experience, "batch_size": 64}
    config = PolicyConfig.model_validate(own)
    spec = PolicySpec("a", config, (5,), "float32", DiscreteActions((3,)))
    if fits:
        assert spec.network().memory
    else:
        with refuses(ConfigError):
            spec.network()


def test_each_policy_draws_weights_of_its_own_as_the_module_draws_them():
    spec = spec_of("ppo", "Wide")
    ones = [first_weights(spec, torch_rng(0, "weights", k)) for k in (0, 1, 0)]
    assert np.array_equal(ones[0], ones[2])
    network = spec.network()
    stack = ParameterStack(network.shapes, 2)
    for k in range(2):
        stack.flat[k].copy_(torch.from_numpy(ones[k]))
    first, norm, scale = (
        stack.parameters[f"hidden_module.{name}"]
        for name in ("first.weight", "norm.weight", "scale")
    )
    assert not torch.equal(first[0], first[1])
    assert float(first.abs().max()) <= 5**-0.5, "torch draws linear layers within 1/sqrt(inputs)"
    assert torch.equal(norm, torch.ones_like(norm))
    assert torch.equal(scale, torch.full_like(scale, 0.5))
    assert "hidden_module.scale" in network.buffers


def test_drawing_weights_leaves_the_random_numbers_of_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first_weights(spec_of("dqn"), torch_rng(0, "weights", 0))
    assert torch.equal(torch.rand(3), expected)


def test_what_cannot_be_lifted_is_told_and_brought_through_one_after_another(caplog):
    with caplog.at_level(logging.WARNING):
        encoder = LiftedModule(f"{OWN}:Branching", {}, (5,))
    assert "Branching: torch.func.vmap cannot run it" in caplog.text
    weights = {name: torch.randn(2, *shape) for name, shape in encoder.shapes("hidden").items()}
    assert encoder.features("hidden", weights, torch.randn(2, 3, 5)).shape == (2, 3, 6)


def test_long_short_term_memory_is_brought_through_for_several_policies_at_once(
    caplog, monkeypatch
):
    """`vmap` has no rule for LSTMCell, so its policies were trained one after another."""
    with caplog.at_level(logging.WARNING):
        encoder = LiftedModule(f"{OWN}:Long", {}, (5,))
    assert caplog.text == ""
    g = torch.Generator().manual_seed(1)
    shapes = encoder.shapes("hidden")
    weights = {n: torch.randn(3, *s, generator=g).requires_grad_() for n, s in shapes.items()}
    inputs, state = torch.randn(3, 4, 5, generator=g), torch.randn(3, 4, 24, generator=g)
    expected = []
    for k in range(3):
        module = own_networks.Long((5,))
        own = {n.removeprefix("hidden_module."): w[k] for n, w in weights.items()}
        expected.append(torch.func.functional_call(module, own, (inputs[k], state[k])))
    monkeypatch.setattr(torch.nn.LSTMCell, "forward", None)  # as it is, it is not called
    found = encoder.step("hidden", weights, inputs, state)
    for ours, theirs in zip(found, zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs))
    total = sum(part.square().sum() for part in found)
    theirs = sum(part.square().sum() for pair in expected for part in pair)
    for ours, own in zip(
        torch.autograd.grad(total, list(weights.values())),
        torch.autograd.grad(theirs, list(weights.values())),
        strict=True,
    ):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-5)


def test_a_single_policy_with_long_short_term_memory_computes_what_pytorch_does():
    encoder, module = LiftedModule(f"{OWN}:Long", {}, (5,)), own_networks.Long((5,))
    inputs, state = torch.randn(1, 4, 5), torch.randn(1, 4, 24)
    own = dict(module.named_parameters())
    weights = {f"hidden_module.{name}": w[None] for name, w in own.items()}
    features, after = encoder.step("hidden", weights, inputs, state)
    expected = module(inputs[0], state[0])
    assert torch.equal(features[0], expected[0])
    assert torch.equal(after[0], expected[1])


def test_a_cell_of_ones_own_is_called_as_it_is(caplog):
    with caplog.at_level(logging.WARNING):
        encoder = LiftedModule(f"{OWN}:LongOwn", {}, (5,))
    assert "LongOwn: torch.func.vmap cannot run it" in caplog.text
    weights = {n: torch.randn(2, *shape) for n, shape in encoder.shapes("hidden").items()}
    inputs, state = torch.randn(2, 3, 5), torch.randn(2, 3, 12)
    together = encoder.step("hidden", weights, inputs, state)
    for k in range(2):
        one = {name: w[k : k + 1] for name, w in weights.items()}
        alone = encoder.step("hidden", one, inputs[k : k + 1], state[k : k + 1])
        assert torch.equal(together[0][k], alone[0][0])


@pytest.mark.parametrize("bias", [True, False])
def test_a_step_of_long_short_term_memory_is_that_of_pytorch(bias):
    cell = torch.nn.LSTMCell(4, 3, bias=bias)
    inputs, state = torch.randn(5, 4), (torch.randn(5, 3), torch.randn(5, 3))
    for given in ((inputs, state), (inputs,), (inputs[0], (state[0][0], state[1][0]))):
        for ours, theirs in zip(lstm_step(cell, *given), cell(*given), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_stacked_frames_come_first_and_observations_keep_their_shape():
    noted, spec = own_networks.Shaped.noted, spec_of("dqn", "Shaped", shape=(4, 3))
    noted.clear()
    spec.network()
    assert noted == {((4, 3), (4, 3))}
    config = spec.config.model_copy(update={"n_frames": 2})
    spec = PolicySpec("a", config, (4, 3), "float32", DiscreteActions((3,)))
    noted.clear()
    network = spec.network()
    assert noted == {((2, 4, 3), (2, 4, 3))}
    assert network.num_inputs == 24


PARTS = spaces.Dict(
    picture=spaces.Box(0, 255, (2, 6, 5), np.uint8),
    inside=spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2,), np.float32)]),
)


def spec_of_parts(algorithm, module, n_frames=1, space=PARTS):
    network = {"module": f"{OWN}:{module}"}
    tree = {"algorithm": algorithm, "n_frames": n_frames, "network": network}
    seen = observation_converter(space).space
    agent = AgentSpec("a", seen, spaces.Discrete(2))
    return policy_specs(load_config({"policy": tree}), [agent])[0]


@pytest.mark.parametrize("module", ["Fuses", "FusesAndRemembers"])
@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_module_gets_the_parts_of_observations(algorithm, n_frames, module, caplog):
    network, stack = stacked(spec_of_parts(algorithm, module, n_frames), 3)
    assert not caplog.records  # all policies in one pass
    encoder, frames = network.encoder, () if n_frames == 1 else (n_frames,)
    shapes = {"picture": (2, 6, 5), "inside.0": (3,), "inside.1": (2,)}
    plain = getattr(own_networks, module)({k: (*frames, *v) for k, v in shapes.items()})
    rows = torch.rand(3, 4, n_frames, 65)
    parts = {
        "picture": rows[..., :60].unflatten(-1, (2, 6, 5)),
        "inside.0": rows[..., 60:63],
        "inside.1": rows[..., 63:],
    }
    if n_frames == 1:
        parts = {name: part.squeeze(2) for name, part in parts.items()}
    tower = next(name for name in stack.parameters if "see" in name).partition("_module")[0]
    weights = network.acting(stack.parameters, None)
    state = [torch.rand(3, 4, 5)] if encoder.memory else []
    with torch.no_grad():
        call = encoder.step if state else encoder.features
        found = call(tower, weights, rows.flatten(2), *state)
        for k in range(3):
            mine = {name: part[k] for name, part in parts.items()}
            plain(mine, *(s[k] for s in state))  # initialises the lazy layer
            plain.load_state_dict(
                {n: stack.parameters[f"{tower}_module.{n}"][k] for n in plain.state_dict()}
            )
            expected = plain(mine, *(s[k] for s in state))
            got = tuple(each[k] for each in found) if state else found[k]
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "space"),
    [
        ("Fuses", PARTS["picture"]),
        ("fuses_untold", PARTS),
        ("Misreads", PARTS),
    ],
)
def test_what_is_wrong_with_a_module_of_parts_is_told(module, space):
    with refuses(ConfigError, module) as found:
        spec_of_parts("ppo", module, space=space).network()
    assert "\n" not in str(found.value)


class Halves(BrightHalf):
    observation_space = PARTS

    def shown(self, half):
        picture = np.zeros((2, 6, 5), np.uint8)
        picture[half] = 255
        inside = int(self.np_random.integers(-1, 2)), self.np_random.random(2, np.float32)
        return {"picture": picture, "inside": inside}


@pytest.mark.slow_cases("dqn", "iqn")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_module_of_parts_learns_acts_and_is_exported(algorithm, tmp_path):
    result = remuda.train(
        Halves,
        env={"num_envs": 16},
        policy={
            "algorithm": algorithm,
            "n_frames": 2,
            "network": {"module": f"{OWN}:Fuses"},
            "learning_rate": 3e-3,
            "experience": {"segment_length": 2, "learning_starts": 64},
            **({} if algorithm == "ppo" else {"batch_size": 32}),
        },
        schedule="sequential",
        run={"turns": 4000, "directory": tmp_path / "run", "evaluate_episodes": 100},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    assert result.evaluation.mean(0) > 0.9
    policy, env = remuda.load(result)["agent_0"], Halves()
    observations = [env.reset(seed=seed)[0] for seed in range(5)]
    actions = [
        policy.act(observation, state=policy.initial_state()) for observation in observations
    ]
    onnxruntime = pytest.importorskip("onnxruntime")
    rows = np.stack([policy.flatten(each) for each in observations])
    stacked_rows = np.stack([np.zeros_like(rows), rows], 1)
    session = onnxruntime.InferenceSession(policy.to_onnx(tmp_path / "policy.onnx"))
    assert session.run(None, {"observation": stacked_rows})[0].tolist() == actions


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (
            "absent",
            ConfigError,
        ),
        ("shared", ConfigError),
        ("drops", ConfigError),
        ("square", ConfigError),
        ("keeps_shape", ContractError),
        ("breaks", ConfigError),
        ("Forgets", ContractError),
        ("Shrinks", ContractError),
        ("Locked", ConfigError),
        ("Fussy", ConfigError),
        ("lazy_norm", ConfigError),
        ("LazyUnused", ConfigError),
        ("AttendsAtRandom", ConfigError),
        ("random_rectifier", ConfigError),
        ("Complex", ConfigError),
        ("scripted", ConfigError),
    ],
)
def test_what_is_wrong_with_a_module_is_told(module, error):
    with refuses(error) as found:
        LiftedModule(f"{OWN}:{module}", {}, (5,))
    assert "\n" not in str(found.value)


def test_dropout_in_a_transformer_is_refused():
    with refuses(ConfigError, "dropout"):
        LiftedModule(f"{OWN}:Attends", {"dropout": 0.1}, (5,))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_transformer_without_dropout_is_lifted(layers, caplog):
    encoder = LiftedModule(f"{OWN}:Attends", {"layers": layers}, (5,))
    assert not caplog.records  # all policies in one pass
    weights = {name: torch.randn(3, *shape) for name, shape in encoder.shapes("hidden").items()}
    inputs = torch.randn(3, 4, 5)
    together = encoder.features("hidden", weights, inputs)
    assert together.shape == (3, 4, encoder.width)
    for k in range(3):
        alone = {name: w[k : k + 1] for name, w in weights.items()}
        expected = encoder.features("hidden", alone, inputs[k : k + 1])
        torch.testing.assert_close(together[k : k + 1], expected, rtol=1e-4, atol=1e-5)


def test_lazy_layers_get_their_shapes_and_each_policy_its_weights():
    network, stack = stacked(spec_of("ppo", "lazy"), 2)
    shapes = {name: shape for name, shape in network.shapes.items() if "module" in name}
    assert shapes["hidden_module.0.weight"] == (6, 5)
    assert shapes["hidden_module.2.weight"] == (4, 6)
    first, second = stack.parameters["hidden_module.0.weight"]
    assert not torch.equal(first, second)
    again = stacked(spec_of("ppo", "lazy"), 1)[1].parameters["hidden_module.0.weight"][0]
    assert torch.equal(first, again)
    assert LiftedModule(f"{OWN}:LazyRemembers", {}, (5,)).width == 4


def test_two_threads_may_go_through_the_same_module(monkeypatch):
    """Red before: one put its weights back while the other was half way."""
    encoder = LiftedModule(f"{OWN}:Stops", {}, (5,))
    x = torch.randn(1, 2, 5)
    weights = [
        {name: torch.randn(1, *shape) for name, shape in encoder.shapes("hidden").items()}
        for _ in range(2)
    ]
    expected = [encoder.features("hidden", own, x) for own in weights]
    inside, go_on = ([threading.Event() for _ in range(2)] for _ in range(2))
    found = {}

    def between():
        me = threading.current_thread().name
        if me in ("0", "1"):
            inside[int(me)].set()
            assert go_on[int(me)].wait(60)

    def work(k):
        found[k] = encoder.features("hidden", weights[k], x)

    monkeypatch.setattr(own_networks.Stops, "between", staticmethod(between))
    threads = [threading.Thread(target=work, args=(k,), name=str(k)) for k in range(2)]
    threads[0].start()
    assert inside[0].wait(60)
    threads[1].start()
    inside[1].wait(0.2)  # not while the other is there
    go_on[0].set()
    threads[0].join(60)
    go_on[1].set()
    threads[1].join(60)
    assert all(torch.equal(found[k], expected[k]) for k in range(2))


def test_options_reach_the_module_and_unknown_ones_are_told():
    assert lifted(f"{OWN}:Wide", {"units": 7}, (5,)).width == 7
    with refuses(ConfigError):
        lifted(f"{OWN}:Wide", {"width": 7}, (5,))


def test_a_module_stands_in_place_of_hidden_layers_and_others_may_follow():
    def hidden(policy, **more):
        tree = {"game": "tag", "policy": {"algorithm": "ppo"} | policy} | more
        return load_config(tree).policy.network.hidden

    own = {"network": {"module": f"{OWN}:small"}}
    assert hidden(own) == ()
    assert hidden({"network": {"module": f"{OWN}:small", "hidden": (9,)}}) == (9,)
    config = load_config({"game": "tag", "policies": {"agent_0": own}})
    assert config.policy_of("agent_0").network.hidden == ()
    assert config.policy.network.hidden == (250, 250)


@pytest.mark.parametrize(
    "network",
    [
        {"module": f"{OWN}:small", "convolutions": ((4, 3, 1),)},
        {"hidden": ()},
    ],
)
def test_settings_that_contradict_each_other_are_refused(network):
    with refuses(ConfigError):
        load_config({"game": "tag", "policy": {"network": network}})


def test_settings_without_effect_are_told():
    network = {"module": f"{OWN}:small", "activation": "tanh"}
    config = load_config({"game": "tag", "policy": {"algorithm": "dqn", "network": network}})
    assert unused_settings(config) == [
        "policy.network.activation has no effect without policy.network.hidden"
    ]
    config = load_config({"game": "tag", "policy": {"network": {"options": {"units": 3}}}})
    assert unused_settings(config) == [
        "policy.network.options has no effect without policy.network.module"
    ]


SMALL = {
    "env": {"num_envs": 2},
    "run": {"turns": 400, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}
LEARNS = {
    "ppo": {"algorithm": "ppo", "ppo": {"rollout_length": 20}},
    "dqn": {"algorithm": "dqn", "n_frames": 1, "experience": {"learning_starts": 100}},
    "iqn": {"algorithm": "iqn", "n_frames": 1, "experience": {"learning_starts": 100}},
}


@pytest.mark.process
@pytest.mark.slow_cases("dqn-async", "iqn-async", "iqn-sequential", "ppo-async", "ppo-sequential")
@pytest.mark.parametrize("schedule", ["sequential", "async"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_is_trained_by_every_algorithm(algorithm, schedule, tmp_path):
    network = {"network": {"module": f"{OWN}:Wide", "options": {"units": 6}}}
    result = remuda.train(
        "support:Tape",
        config=SMALL,
        schedule=schedule,
        policy=LEARNS[algorithm] | network,
        run={"directory": tmp_path / "run"},
        view=PlainView(),
    )
    run = remuda.load(result)
    policy = run["agent_0"]
    assert policy.learner_step > 0
    weights = policy.weights()
    assert not np.array_equal(weights["hidden_module.norm.weight"], np.ones(6)), "it was trained"
    assert weights["hidden_module.first.weight"].shape == (6, 5)
    assert np.array_equal(weights["hidden_module.scale"], np.full(6, 0.5, np.float32))
    observations = np.random.default_rng(0).normal(size=(9, *policy.observation_space.shape))
    assert policy.act(observations.astype(np.float32)).shape == (9,)
