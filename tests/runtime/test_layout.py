"""Layout: policies are dealt to processes and devices as the machine and the user say."""

import pytest

from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError
from remuda.runtime.layout import Costs, is_open, make_layout, parts_at_once


@pytest.fixture
def machine(monkeypatch):
    def be(cores, gpus=0):
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)

    return be


def test_one_process_per_policy_where_cores_allow(machine):
    machine(8)
    assert make_layout(load_config({}), 3).groups == ((0,), (1,), (2,))


def test_groups_otherwise(machine):
    machine(2)
    assert make_layout(load_config({}), 5).groups == ((0, 1, 2), (3, 4))


def test_as_the_user_says(machine):
    machine(2)
    config = load_config({"learners": {"processes": 3}})
    assert make_layout(config, 4).groups == ((0, 1), (2,), (3,))
    assert make_layout(config, 2).groups == ((0,), (1,))


@pytest.mark.parametrize(
    ("play", "learn", "cores", "expected"),
    [
        (1.0, 4.8, 2, (1, 2)),  # two cores' worth of training: both, and the game beside them
        (1.0, 4.8, 8, (2, 7)),  # no core is left over, and both wait for each other about as long
        (1.0, 0.1, 4, (4, 1)),  # a slow game: as many actors as there are cores
        (0.1, 1.0, 16, (1, 8)),  # one learner for each policy is all there can be
        (1.0, 0.9, 2, (1, 1)),
        (1.0, 0.0, 4, (4, 1)),  # training was never seen: it costs next to nothing
    ],
)
def test_the_fewest_processes_that_are_as_fast_as_any(machine, play, learn, cores, expected):
    machine(cores)
    layout = make_layout(load_config({"env": {"num_envs": 64}}), 8, Costs(play, learn))
    assert (len(layout.copies), len(layout.groups)) == expected
    assert sum(layout.copies) == 64
    assert sorted(sum(layout.groups, ())) == list(range(8))


def test_copies_that_share_the_cost_of_a_turn_are_not_parted(machine):
    """Two actors would play half as many copies each, at nearly the cost of all."""
    machine(4)
    config = load_config({"env": {"num_envs": 16}})
    shared = Costs(play=0.5, learn=0.5, turn=160.0)
    assert shared.playing(16) == 10.5
    assert len(make_layout(config, 1, shared).copies) == 1
    assert len(make_layout(config, 1, Costs(play=10.5, learn=0.5)).copies) == 4


def test_a_population_is_dealt_by_several_actors_where_its_game_is_slow(machine):
    machine(4)
    population = {"matchmaker": "random", "policies": 3}
    tree = {"env": {"num_envs": 16}, "population": population}
    slow, fast = Costs(play=1e-3, learn=1e-5), Costs(play=1e-5, learn=1e-7)
    assert len(make_layout(load_config(tree), 3, slow).copies) == 4
    assert len(make_layout(load_config(tree), 3, fast).copies) == 1
    assert len(make_layout(load_config({"env": {"num_envs": 16}}), 3, fast).copies) == 4
    assert is_open(load_config(tree | {"learners": {"processes": 1}}), [])
    told = load_config(tree | {"actor": {"processes": 2}})
    assert make_layout(told, 3, fast).copies == (8, 8)
    for schedule in ("sequential", "lockstep"):
        assert len(make_layout(load_config(tree | {"schedule": schedule}), 3).copies) == 1
        exact = load_config(tree | {"schedule": schedule, "actor": {"processes": 2}})
        with refuses(ConfigError):
            make_layout(exact, 3)


def test_what_the_user_says_stands_beside_what_is_measured(machine):
    machine(4)
    slow = Costs(1.0, 0.1)
    one = make_layout(load_config({"actor": {"processes": 1}, "env": {"num_envs": 9}}), 2, slow)
    assert one.copies == (9,)
    three = load_config({"learners": {"processes": 3, "threads": 2}, "env": {"num_envs": 9}})
    layout = make_layout(three, 4, slow)
    assert (layout.copies, layout.threads) == ((3, 2, 2, 2), 2)
    assert len(layout.groups) == 3
    with refuses(ConfigError, "learners.threads"):
        make_layout(load_config({"learners": {"threads": 2}, "schedule": "lockstep"}), 2)


@pytest.mark.parametrize(
    ("cores", "policies", "tree", "here", "parts"),
    [
        (2, 1, {}, None, 2),
        (2, 8, {}, None, 1),
        (8, 2, {}, None, 4),
        (8, 2, {}, (0, 1), 8),  # of several nodes: the actor and one learner live here
        (8, 2, {}, (0,), 1),
        (2, 1, {"actor": {"processes": 2}, "env": {"num_envs": 2}}, None, 1),
        (2, 1, {"learners": {"threads": 1}}, None, 1),
        (8, 2, {"learners": {"threads": 3}}, None, 3),
        (2, 1, {"schedule": "sequential"}, None, 1),
        (8, 1, {"learners": {"devices": ["cuda:0"]}}, None, 1),
    ],
)
def test_cores_without_a_learner_share_its_parts(machine, cores, policies, tree, here, parts):
    machine(cores, gpus=1)
    tree = overlay({"learners": {"devices": ["cpu"]}}, tree)
    assert parts_at_once(make_layout(load_config(tree), policies), here) == parts


def test_a_process_for_each_gpu(machine):
    machine(16, gpus=2)
    layout = make_layout(load_config({}), 5)
    assert layout.groups == ((0, 2, 4), (1, 3))
    assert [layout.devices[i] for i in layout.groups[1]] == ["cuda:1", "cuda:1"]


def test_devices_go_round(machine):
    machine(4, gpus=2)
    assert make_layout(load_config({}), 3).devices == ("cuda:0", "cuda:1", "cuda:0")
    config = load_config({"learners": {"devices": ["cpu"]}})
    assert make_layout(config, 2).devices == ("cpu", "cpu")


def test_a_policy_may_have_a_device_of_its_own(machine):
    machine(16, gpus=2)
    config = load_config({})
    layout = make_layout(config, 4, own_devices=["cpu", "", "", "cpu"])
    assert layout.devices == ("cpu", "cuda:1", "cuda:0", "cpu")
    assert layout.groups == ((0, 3), (1,), (2,))
    assert "on cpu, cuda:0, cuda:1" in layout.describe("async", ["a", "b", "c", "d"])
    two = load_config({"learners": {"processes": 2}})  # fewer than devices: one has several
    assert make_layout(two, 4, own_devices=["cpu", "", "", "cpu"]).groups == ((0, 3), (1, 2))
    five = load_config({"learners": {"processes": 5}})
    layout = make_layout(five, 6, own_devices=["cpu"] * 5 + ["cuda:0"])
    assert layout.groups == ((0, 1), (2,), (3,), (4,), (5,))
    alike = make_layout(config, 3, own_devices=["", "", ""])
    assert alike == make_layout(config, 3)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (
            "cuda:77",
            "'cuda:77' does not exist: this machine has 2 GPUs; use one of cpu, cuda:0, cuda:1",
        ),
        ("gpu", "'gpu' is not a device; use one of cpu, cuda:0, cuda:1"),
        ("meta", "'meta' is not available here; use one of cpu, cuda:0, cuda:1"),
        ("mps", "'mps' is not available here; use one of cpu, cuda:0, cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused_by_the_name_of_its_setting(machine, device, said):
    machine(4, gpus=2)
    for tree in ({"learners": {"devices": ["cuda:0", device]}}, {"actor": {"device": device}}):
        (section,) = tree
        key = f"{section}.{next(iter(tree[section]))}"
        with pytest.raises(ConfigError) as error:
            make_layout(load_config(tree), 2)
        assert str(error.value) == f"{key} {said}"
    with pytest.raises(ConfigError) as error:
        make_layout(load_config({}), 2, own_devices=["", device])
    assert str(error.value) == f"policy.device {said}"


def test_eight_policies_on_two_gpus(machine):
    machine(16, gpus=2)
    layout = make_layout(load_config({}), 8)
    assert layout.devices == ("cuda:0", "cuda:1") * 4
    assert layout.groups == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert "2 learner processes for 8 policies, on cuda:0, cuda:1" in layout.describe(
        "async", "abcdefgh"
    )
    four = make_layout(load_config({"learners": {"processes": 4}}), 8)
    assert [{four.devices[i] for i in group} for group in four.groups] == [
        {"cuda:0"},
        {"cuda:0"},
        {"cuda:1"},
        {"cuda:1"},
    ]
    one = make_layout(load_config({"learners": {"processes": 1}}), 8)
    assert one.groups == (tuple(range(8)),)


def test_on_gpus_there_is_a_choice_of_actors_alone(machine):
    machine(16, gpus=2)
    config = load_config({"env": {"num_envs": 16}})
    assert is_open(config, [""] * 8)
    assert not is_open(load_config({"env": {"num_envs": 1}}), [""] * 8)
    assert not is_open(load_config({"env": {"num_envs": 16, "workers": 2}}), [""] * 8)
    two = load_config({"env": {"num_envs": 16}, "actor": {"processes": 2}})
    assert not is_open(two, [""] * 8)
    assert not is_open(config, ["cuda:0"] + [""] * 7)
    layout = make_layout(config, 8, Costs(play=4.0, learn=1.0))
    assert (len(layout.copies), layout.groups) == (8, ((0, 2, 4, 6), (1, 3, 5, 7)))
    assert len(make_layout(config, 8, Costs(play=0.4, learn=1.0)).copies) == 1


def test_learners_on_the_processor_are_tried_out_where_there_are_gpus_too(machine):
    machine(16, gpus=2)
    config = load_config({"env": {"num_envs": 16}, "learners": {"devices": ["cpu"]}})
    assert is_open(config, [""] * 8)
    machine(16)
    assert is_open(config, [""] * 8)
    assert is_open(load_config({"env": {"num_envs": 1}}), [""] * 8)
    assert not is_open(config, ["cuda:0"] + [""] * 7)
