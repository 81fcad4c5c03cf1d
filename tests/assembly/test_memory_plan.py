"""What a run will take of the memory: worked out before anything is made, and near to the truth."""

import gc
import sys
import time
import tracemalloc
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from assembled import assemble, spec_of
from remuda.assembly.calibration import choose_layout
from remuda.assembly.memory_plan import (
    GIB,
    LIBRARIES,
    LOADED_TWICE,
    PROCESS,
    WHAT_COMPILES,
    available_memory,
    check_memory,
    copy_size,
    plan,
    setting_to_reduce,
    size_of_arrays,
)
from remuda.config import load_config, write_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.experience.ring import FINAL, ExperienceRing
from remuda.experience.sequence_replay import SequenceReplay
from remuda.policies.stack import layout_size
from remuda.population.members.table import Table
from remuda.population.members.table_parts import RECORDS, newest_of
from remuda.population.roster import SPARE
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import published
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Manifest
from remuda.system.memory.shared import PAGE, Arena, SharedArrays
from remuda.system.memory.waiting import Wakeup
from remuda.training.prepare import prepare
from remuda.ui.cli.main import run
from support import make_experience


def planned(tree):
    config = load_config(tree)
    env, two = (make_env(config.game, n, **config.env.options) for n in (1, 2))
    specs = policy_specs(config, env.agents)
    layout = make_layout(config, len(specs))
    return (
        config,
        specs,
        env,
        layout,
        copy_size(size_of_arrays(env), size_of_arrays(two), env.agents),
    )


HUGE = [
    ({"policy": {"experience": {"capacity": 4_000_000_000}}}, "policy.experience.capacity"),
    ({"env": {"num_envs": 100_000_000}}, "env.num_envs"),
    ({"policy": {"network": {"hidden": [100_000_000]}}}, "policy.network.hidden"),
    ({"policy": {"network": {"hidden": [20_000, 20_000]}}}, "policy.network.hidden"),
    (
        {"env": {"options": {"num_agents": 361, "width": 40, "height": 40}}},
        "policy.experience.capacity",
    ),
    (
        {"policies": {"agent_1": {"experience": {"capacity": 4_000_000_000}}}},
        "policies.agent_1.experience.capacity",
    ),
    ({"policy": {"algorithm": "ppo"}, "env": {"num_envs": 100_000_000}}, "env.num_envs"),
    (
        {"policy": {"algorithm": "ppo", "ppo": {"rollout_length": 100_000_000}}},
        "rollout_length",
    ),
    (
        {
            "policy": {"algorithm": "ppo", "network": {"hidden": [2000, 2000]}},
            "population": {"policies": 20, "snapshots": {"every": 1, "keep": 1000}},
        },
        "population.snapshots.keep",
    ),
    (
        {
            "policy": {
                "batch_size": 10**9,
                "experience": {"capacity": 10**9, "learning_starts": 10**9},
            }
        },
        "policy.",
    ),
]


HUGE_FACTORS = [
    ("experience.segment_length", 2**31 - 1),
    ("iqn.quantiles", 10**8),
    ("n_frames", 10**8),
    ("batch_size", 10**8),
    ("network.recurrent", 10**5),
]


@pytest.mark.parametrize(("key", "value"), HUGE_FACTORS)
@pytest.mark.parametrize("whose", ["policy", "policies.agent_0"])
def test_of_all_that_make_it_large_the_most_unusual_is_named(whose, key, value):
    """Not one that multiplies it as well, and that may be as low as it can be."""
    tree = value
    if key == "batch_size":
        tree = {"batch_size": value, "experience": {"capacity": value, "learning_starts": value}}
    else:
        for part in reversed(key.split(".")):
            tree = {part: tree}
    for part in reversed(whose.split(".")):
        tree = {part: tree}
    config, specs, env, layout, size = planned(tree)
    with pytest.raises(ConfigError) as error:
        check_memory(spec_of(config, env.agents), specs, layout, size, available=8 * GIB)
    assert str(error.value).endswith(f": lower {whose}.{key}, which is {value:,}")


def test_what_is_as_low_as_it_can_be_is_not_to_be_lowered():
    policy = {"n_frames": 1, "network": {"hidden": (1,)}, "batch_size": 1}
    config = load_config({"policy": policy})
    keys = ("env.num_envs", "policy.n_frames", "policy.network.hidden", "policy.iqn.quantiles")
    assert setting_to_reduce(config, keys) == "policy.iqn.quantiles"


@pytest.mark.parametrize(("tree", "setting"), HUGE)
def test_what_does_not_fit_is_refused_with_the_setting_that_is_too_large(tree, setting):
    config, specs, env, layout, size = planned(tree)
    with pytest.raises(ConfigError) as error:
        check_memory(spec_of(config, env.agents), specs, layout, size, available=8 * GIB)
    said = str(error.value)
    assert setting in said.split(": lower ")[1]
    assert "8.0 GiB are free" in said
    assert "\n" not in said


@pytest.mark.slow_cases("words3")
@pytest.mark.parametrize(
    "words",
    [
        ("--policy.experience.capacity", "4000000000"),
        ("--env.num_envs", "100000000"),
        ("--policy.network.hidden", "100000000"),
        (
            "--env.options.num_agents",
            "361",
            "--env.options.width",
            "40",
            "--env.options.height",
            "40",
        ),
    ],
)
@pytest.mark.timeout(60)
def test_it_is_refused_before_anything_is_made(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("remuda.assembly.memory_plan.available_memory", lambda: 8 * GIB)
    directory = tmp_path / "run"
    tracemalloc.start()
    assert run(["train", "treasure_hunt", *words, "--run.directory", str(directory)]) == 2
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**28
    said = capsys.readouterr().err
    assert "this run would take" in said
    assert said.count("\n") == 1
    assert not directory.exists()


def shared_bytes(assembly):
    """Of all shared memory of a run; of final observations a page in each segment at most."""
    seen, found = set(), 0
    todo = [assembly.experience, assembly.published, assembly.table]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or thing is None:
            continue
        seen.add(id(thing))
        if isinstance(thing, ExperienceRing):
            final = sum(thing.shared[name].nbytes for name in FINAL)
            one = final // (thing.num_segments * thing.shared["rewards"].shape[1])
            found -= max(final - thing.num_segments * (one + PAGE), 0)
        if isinstance(thing, SharedArrays):
            found += thing.nbytes
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, (list, tuple)):
            todo += thing
        elif hasattr(thing, "__dict__"):
            todo += vars(thing).values()
    return found


RPS = {"game": "rock_paper_scissors", "env": {"num_envs": 50}}
PPO = {"algorithm": "ppo", "ppo": {"rollout_length": 16}, "experience": {"segment_length": 8}}


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"env": {"num_envs": 40}, "policy": {"experience": {"capacity": 50_000}}},
        {"policy": {"algorithm": "ppo"}, "env": {"num_envs": 64}},
        {"policy": {"algorithm": "ppo", "learning_mode": "hybrid"}, "env": {"num_envs": 64}},
        {"policy": {"network": {"hidden": [2000, 1000]}, "experience": {"capacity": 5_000}}},
        {"env": {"num_envs": 12}, "actor": {"processes": 3}},
        RPS | {"policy": PPO, "population": {"matchmaker": "random", "policies": 6}},
        RPS
        | {
            "policy": PPO,
            "population": {"matchmaker": "random", "policies": 6},
            "env": {"num_envs": 50},
            "actor": {"processes": 3},
        },
        RPS
        | {
            "policy": PPO | {"network": {"hidden": [500, 500]}},
            "population": {
                "matchmaker": "self_play",
                "policies": 3,
                "snapshots": {"every": 5, "keep": 7},
            },
        },
    ],
)
def test_the_plan_of_what_is_shared_is_near_to_the_truth(tree):
    config, specs, env, layout, size = planned(tree)
    items = plan(spec_of(config, env.agents), specs, layout, size)
    shared = sum(i.size for i in items if i.what.startswith("the experience"))
    shared += sum(2 * 4 * parameters(spec) for spec in specs)
    frozen = sum(i.size for i in items if i.what.startswith("the frozen"))
    shared += frozen // (1 + len(layout.copies))  # the rest is what each actor holds of them
    assembly = assemble(
        config, specs, layout, episode_metrics=env.episode_metrics, agents=env.agents
    )
    made = shared_bytes(assembly)
    table = 0 if assembly.table is None else assembly.table.nbytes
    assert made - table == pytest.approx(shared, rel=0.1)


@pytest.mark.parametrize(("keep", "actors"), [(1, 1), (10, 1), (1, 3)])
def test_the_table_of_a_population_is_in_the_plan(keep, actors):
    population = {"matchmaker": "random", "policies": 200, "snapshots": {"every": 5, "keep": keep}}
    tree = {"policy": PPO, "population": population, "actor": {"processes": actors}}
    config, specs, env, layout, size = planned(RPS | tree)
    items = plan(spec_of(config, env.agents), specs, layout, size)
    table = sum(item.size for item in items if item.what.startswith("the results of matches"))
    sizes = {spec.name: 1 for spec in specs}
    made = Table(sizes, len(env.agents), keep + SPARE, followers=layout.copies[1:])
    lines = 64 * 7 * (actors - 1)  # the arrays of each other actor begin on lines of their own
    assert table == pytest.approx(made.nbytes, abs=lines)


def most_traced(make):
    """Bytes that are taken at most while something is made."""
    tracemalloc.start()
    try:
        made = make()
        return tracemalloc.get_traced_memory()[1], made
    finally:
        tracemalloc.stop()


def test_the_frozen_copies_in_a_checkpoint_are_in_the_plan(tmp_path):
    """The coordinator copies all of them, and reads all for play against the best so far."""
    population = {"matchmaker": "random", "policies": 4, "snapshots": {"every": 5, "keep": 7}}
    tree = RPS | {"policy": PPO | {"network": {"hidden": [300, 300]}}, "population": population}
    words = "a checkpoint of the frozen copies", "the best checkpoint"

    def expected(episodes):
        config, *rest = planned(tree | {"checkpoint": {"evaluate_episodes": episodes}})
        specs, env, layout, size = rest
        items = plan(spec_of(config, env.agents), specs, layout, size)
        return sum(item.size for item in items if item.what.startswith(words))

    config, specs, env, layout, _ = planned(tree)
    assembly = assemble(
        config, specs, layout, episode_metrics=env.episode_metrics, agents=env.agents
    )
    copied, _ = most_traced(assembly.table.state)
    assert copied == pytest.approx(expected(0), rel=0.1)
    run = RunDirectory(tmp_path)
    number = run.checkpoints.begin()
    run.checkpoints.write(number, COORDINATOR, assembly.state())
    run.checkpoints.commit(Manifest(number, 1, 1.0, False, {}, {}))
    read, found = most_traced(lambda: published(run, spec_of(config), number))
    assert len(found) == len(specs)
    assert read == pytest.approx(expected(5) - expected(0), rel=0.1)


@pytest.mark.parametrize("own", [True, False])
def test_what_a_scripts_server_loads_anew_is_in_the_plan(own, monkeypatch):
    monkeypatch.setattr("remuda.system.processes.client.is_own_fork", lambda: own)

    def sizes(tree):
        config, specs, env, layout, size = planned(tree)
        return {
            item.what: item.size for item in plan(spec_of(config, env.agents), specs, layout, size)
        }

    found = sizes({"learners": {"processes": 1}, "actor": {"processes": 1}})
    assert found["3 processes"] == 2 * PROCESS + (LIBRARIES if own else LOADED_TWICE)
    assert sizes({"schedule": "sequential"})["1 process"] == LIBRARIES


@pytest.mark.slow
def test_the_sequences_that_recurrent_learners_draw_are_in_the_plan():
    own = {"batch_size": 32, "experience": {"segment_length": 1000, "learning_starts": 1000}}
    tree = {"algorithm": "dqn", "network": {"recurrent": 512}} | own
    config, specs, env, layout, size = planned({"game": "cleanup", "policy": tree})
    items = plan(spec_of(config, env.agents), specs, layout, size)
    (batches,) = [item for item in items if item.what.startswith("batches")]
    experience = make_experience(specs[0], (1,), Wakeup(), (Wakeup(),))
    replay = SequenceReplay([experience], 1, 0.9, np.random.default_rng(0))
    drawn = replay.empty(len(specs), 1)
    assert batches.size > sum(array.nbytes for array in drawn)
    assert batches.settings[0] == "policy.experience.segment_length"


def test_the_first_run_of_an_installation_is_in_the_plan():
    """What compiles takes 240 MiB more, all processes together."""
    config, specs, env, layout, size = planned({"schedule": "sequential"})
    sizes = {
        item.what: item.size for item in plan(spec_of(config, env.agents), specs, layout, size)
    }
    assert sizes["1 process"] == LIBRARIES
    assert sizes[WHAT_COMPILES] == 240 * 2**20


@pytest.mark.parametrize("seats", [2, 361])
def test_the_newest_records_of_many_seats_stay_small(seats):
    """At 361 seats they took 678 MiB."""
    table, seen = Table({"a": 1}, seats, 0), []
    assert table.arrays["records"].nbytes <= 64 * 2**20
    assert table.records.size >= newest_of(5000) == 4096
    for count in (table.records.size // 2, table.records.size // 2 + 10, 5):
        begin = table.word(RECORDS)
        records = table.records.empty(count)
        records["number"] = np.arange(begin, begin + count)
        table.records.add(records)
        found, _ = table.records.since(begin)
        seen += found["number"].tolist()
    assert seen == list(range(table.word(RECORDS)))


def parameters(spec):
    return sum(int(np.prod(shape)) for shape in spec.network().shapes.values())


@pytest.mark.parametrize(
    "game", ["treasure_hunt", "connect_four", "tag", "kuhn_poker", "leduc_poker"]
)
def test_the_size_of_a_copy_is_its_arrays(game):
    one, two, many = (make_env(game, n) for n in (1, 2, 1000))
    each = copy_size(size_of_arrays(one), size_of_arrays(two), one.agents)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    again = make_env(game, 1000)
    made = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert made < 1000 * each + 2**20
    assert each < 10 * made / 1000 + 10_000
    for env in (one, two, many, again):
        env.close()


def cgroup(root, version, limit, used, cache=0):
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    if version == 2:
        (root / "proc/self/cgroup").write_text("0::/jobs/one\n")
        group, names = root / "sys/fs/cgroup/jobs/one", ("memory.max", "memory.current")
        stat = f"anon 5\ninactive_file {cache}\n"
    else:
        (root / "proc/self/cgroup").write_text("4:cpu,cpuacct:/x\n3:memory:/jobs/one\n")
        group = root / "sys/fs/cgroup/memory/jobs/one"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        stat = f"cache 5\ntotal_inactive_file {cache}\n"
    group.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (group / name).write_text(f"{value}\n")
    (group / "memory.stat").write_text(stat)
    return group


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_counts(version, tmp_path):
    group = cgroup(tmp_path, version, 2**20, 2**19, 2**18)
    assert available_memory(tmp_path) == 2**20 - 2**19 + 2**18
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (group / name).write_text("max\n")
    assert available_memory(tmp_path) > 2**20
    if version == 2:  # that of a group above counts too
        for other in ("memory.current", "memory.stat"):
            (group.parent / other).write_text((group / other).read_text())
        (group.parent / name).write_text(f"{2**19}\n")
        assert available_memory(tmp_path) == 2**18


@pytest.mark.slow_cases("iqn")
@pytest.mark.parametrize("algorithm", ["iqn", "ppo"])
def test_a_trial_leaves_no_memory_behind(algorithm, monkeypatch):
    """The memory of each trial was kept until the garbage collector happened to look."""
    made = []

    class Trial(Arena):
        def __init__(self, sparse):
            assert all(file() is None for file in made)  # of the trial before
            super().__init__(sparse)

        def cut(self, size):
            file, offset = super().cut(size)
            made.append(weakref.ref(file))
            return file, offset

    monkeypatch.setattr("remuda.assembly.assembly.Arena", Trial)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    tree = {"env": {"num_envs": 8}, "run": {"calibrate": 0.05}, "policy": {"algorithm": algorithm}}
    config, _, env, *_ = planned(tree)
    gc.disable()
    try:
        choose_layout(spec_of(config, env.agents))
        assert made
        assert all(file() is None for file in made)
    finally:
        gc.enable()


def resident(pid, files):
    """Bytes of a process that no other shares, and its part of what is shared; not Remuda's files.

    Args:
        pid: the process.
        files: Remuda's anonymous files, by inode, to which those of this process are added.
    """
    size = 0
    with suppress(OSError):  # it has ended meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_File:")):
                size += int(line.split()[1]) * 1024
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if "memfd:remuda" in str(descriptor.readlink()):
                    found = descriptor.stat()
                    files[found.st_ino] = found.st_blocks * 512
    return size


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
@pytest.mark.parametrize("algorithm", ["iqn", "dqn", "ppo", "mappo", "sac"])
def test_the_plan_is_near_to_what_a_run_takes(algorithm, tmp_path, monkeypatch):
    """All processes together, at their most, whether something is compiled meanwhile or not."""
    copies, agents = (32, 16) if algorithm in ("ppo", "mappo") else (4, 24)
    tree = {
        "game": "treasure_hunt",
        "env": {"num_envs": copies, "options": {"num_agents": agents, "height": 20, "width": 20}},
        "policy": {"algorithm": algorithm},
        "learners": {"processes": 2},
        "actor": {"processes": 1},
        "run": {"turns": 512 * copies, "evaluate_episodes": 4, "directory": str(tmp_path / "run")},
    }
    config, specs, env, layout, size = planned(tree)
    monkeypatch.setattr(
        "remuda.system.processes.client.is_own_fork", lambda: True
    )  # of the program
    items = plan(spec_of(config, env.agents), specs, layout, size)
    expected = sum(item.size for item in items)
    compiled = sum(item.size for item in items if item.what != WHAT_COMPILES)
    assert compiled < expected
    path = tmp_path / "run.yaml"
    write_config(config, path)
    command = [sys.executable, "-m", "remuda", "train", "--config", str(path)]
    most = 0
    with (tmp_path / "out").open("w") as out:
        run = psutil.Popen(command, stdout=out, stderr=out)
        while run.poll() is None:
            files: dict[int, int] = {}
            with suppress(psutil.NoSuchProcess):
                pids = [run.pid, *(child.pid for child in run.children(recursive=True))]
                found = sum(resident(pid, files) for pid in pids) + sum(files.values())
                most = max(most, found)
            time.sleep(0.1)
    assert run.returncode == 0, (tmp_path / "out").read_text()
    told = f"{compiled / GIB:.2f} to {expected / GIB:.2f}, and it took {most / GIB:.2f}"
    assert 0.75 * most < expected, told
    assert compiled < 1.5 * most, told


@pytest.mark.parametrize(("algorithm", "vectors"), [("ppo", 2), ("dqn", 3)], ids=["ppo", "dqn"])
def test_what_newborn_policies_take_over_is_in_the_plan(algorithm, vectors):
    """As much as it takes in shared memory, in the table and in a checkpoint."""

    def by_name(**evolution):
        tree = {
            "game": "treasure_hunt",
            "policy": {"algorithm": algorithm},
            "population": {"evolution": {"every": 100} | evolution},
        }
        found = planned(tree)
        config, specs, env, layout, size = found
        return specs, {
            i.what: i.size for i in plan(spec_of(config, env.agents), specs, layout, size)
        }

    specs, alone = by_name(inherit="weights")
    _, all_of_it = by_name()
    more = {what: size for what, size in all_of_it.items() if what not in alone}
    weights = sum(4 * layout_size(spec.network().shapes) for spec in specs)
    (inherited,) = (size for what, size in more.items() if "inherit" in what)
    assert inherited == 6 * vectors * weights
    assert len(more) == 1


def test_what_every_run_takes_is_not_to_be_lowered_where_it_cannot_be():
    config = load_config({"game": "rock_paper_scissors", "schedule": "sequential"})
    ready = prepare(config)
    with pytest.raises(ConfigError) as error:
        check_memory(
            ready.spec,
            ready.specs,
            ready.layout,
            ready.copy_size,
            available=2**20,
        )
    said = str(error.value)
    assert "learners.processes" not in said
    assert ": end other programs, or lower policy." in said
