"""Levels of oracles that train at once: whom they meet, what goes on, and what a crash leaves."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

import remuda
from remuda.config import load_config
from remuda.coordinator.run_directory import RunDirectory
from remuda.double_oracle import pipeline
from remuda.double_oracle.iterations import INTERRUPTED, SPENT
from remuda.double_oracle.oracles import OracleSettings
from remuda.double_oracle.pipeline import Fixed, LevelAnnealing, oracle_name
from remuda.double_oracle.record import Record, read
from remuda.double_oracle.trained import run_trained
from remuda.double_oracle.trained_setup import TrainedSetup, check_slices
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ledger import read_records, results
from remuda.ui.live import PlainView

BIASED = {"biased": True, "rounds": 1}


def setup_of(levels=2, turns=1600, matches=50, **others):
    small = {"network": {"hidden": [16]}, "ppo": {"rollout_length": 8}}
    oracles = OracleSettings(1, None, turns, small, 16, "sequential", 60)
    setup = TrainedSetup("rock_paper_scissors", BIASED, "nash", 3, matches, oracles, levels)
    return replace(setup, **others)


def run(setup, directory, iterations, **others):
    return run_trained(setup, iterations, directory, PlainView(), **others)


def plain(found):
    return [{**each.as_line(), "seconds": 0} for each in found.iterations]


def slices_of(directory):
    return [line["levels"] for line in read(directory)[1:] if "slice" in line]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three levels, of which two train at once."""
    directory = tmp_path_factory.mktemp("psro") / "whole"
    return run(setup_of(), directory, 3), directory


def test_a_level_begins_before_the_one_below_is_done(whole):
    found, directory = whole
    assert found.ended == SPENT
    assert [each.is_exact for each in found.iterations] == [True] * 4
    # Each has two slices; the first has nothing to go along with, and the last nobody above.
    assert slices_of(directory) == [[1, 1], [1, 2], [2, 3], [3, 3]]
    kinds = [next(iter(line)) for line in read(directory)[1:]]
    assert kinds == [
        *("after", "after", "iteration", "slice", "slice", "responses"),
        *("after", "after", "iteration", "slice", "responses"),
        *("after", "after", "iteration", "slice", "responses"),
        *("after", "after", "iteration"),
    ]


def test_a_level_meets_the_live_weights_below_it(whole):
    """The versions that acted are many, and the later the match, the newer they are."""
    _, directory = whole
    acted = []
    for result in results(directory / "slice_1" / "ledger.bin"):
        own, other = result.match.seats
        if own.policy == oracle_name(2, 0, 0) and other.policy == oracle_name(1, 1, 0):
            assert other.version == -1  # no copy
            acted.append(result.acted[1])
    assert len(acted) > 50
    newest = [newest for _, newest in acted]
    assert len(set(newest)) > 5
    assert newest == sorted(newest)
    # It is level 1's own training that moves them: that is what it published when the run ended.
    live = remuda.load(directory / "slice_1")[oracle_name(1, 1, 0)].version
    assert max(newest) >= live - 2


def test_all_levels_of_both_players_are_one_stack(whole):
    _, directory = whole
    names, _ = read_records(directory / "slice_2" / "ledger.bin")
    live = [oracle_name(level, player, 0) for level in (2, 3) for player in (0, 1)]
    assert list(names[:4]) == live
    assert {"random", "slice_1-level_1_0_0"} <= set(names)  # the fixed ones beside them
    learned = {name: remuda.load(directory / "slice_2")[name].learner_step for name in live}
    assert min(learned.values()) > 0
    assert max(learned.values()) <= 1.5 * min(learned.values())


def test_a_level_goes_on_with_its_weights_and_moments(whole):
    _, directory = whole
    sources = json.loads((directory / "slice_1" / "initial" / "sources.json").read_text())
    assert set(sources) == {oracle_name(1, 0, 0), oracle_name(1, 1, 0)}  # level 2 begins
    config = load_config(RunDirectory.open(directory / "slice_1").read_config().model_dump())
    begun = remuda.load(directory / "slice_0")
    for name, source in sources.items():
        assert source["learner_step"] == begun[name].learner_step > 0
        assert config.policy_of(name).init_optimizer
    # The learning rate falls on where it was: to a half in the first slice, to nothing after it.
    rates = [
        RunDirectory.open(directory / f"slice_{at}").read_config().policy_of(oracle_name(1, 0, 0))
        for at in (0, 1)
    ]
    assert rates[1].learning_rate == pytest.approx(rates[0].learning_rate / 2)
    assert rates[1].ppo.anneal_steps == rates[0].ppo.anneal_steps / 2
    new = config.policy_of(oracle_name(2, 0, 0))
    assert (new.learning_rate, new.init_from) == (rates[0].learning_rate, None)


def test_the_same_again(whole, tmp_path):
    found, _ = whole
    assert plain(run(setup_of(), tmp_path / "again", 3)) == plain(found)


def test_processes_that_take_turns_find_the_same(whole, tmp_path):
    """`lockstep` agrees with `sequential` about whom a live policy meets, too."""
    setup = setup_of()
    setup = replace(setup, oracles=replace(setup.oracles, schedule="lockstep"))
    assert plain(run(setup, tmp_path / "again", 3)) == plain(whole[0])


@pytest.mark.parametrize(
    "when", [5, *(pytest.param(when, marks=pytest.mark.slow) for when in (1, 3, 4, 6, 8, 10, 14))]
)
def test_who_was_killed_goes_on_and_trains_nothing_twice(whole, tmp_path, monkeypatch, when):
    found, directory = whole
    place = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        append, count = Record.append, iter(range(100))

        def killed(self, line):
            if next(count) == when:
                os.kill(os.getpid(), signal.SIGKILL)
            append(self, line)

        Record.append = killed
        run(setup_of(), place, 3)
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    known = slices_of(place)
    trained = []
    train = pipeline.train
    monkeypatch.setattr(
        pipeline, "train", lambda *words, **more: trained.append(1) or train(*words, **more)
    )
    assert plain(run(setup_of(), place, 3, resume=True)) == plain(found)
    assert len(trained) == 4 - len(known)
    lines = [
        [{**line, "seconds": 0, "trained_seconds": 0} for line in read(p)[1:]]
        for p in (place, directory)
    ]
    assert lines[0] == lines[1]


def test_who_was_killed_while_a_slice_trained_begins_that_slice_anew(whole, tmp_path):
    """What it left behind is taken away, whatever state it is in."""
    found, _ = whole
    place = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        train, count = pipeline.train, iter(range(100))

        def killed(*words, **more):
            if next(count) == 1:
                config = words[0].model_copy(
                    update={"run": words[0].run.model_copy(update={"turns": 400})}
                )
                train(config, *words[1:], **more)  # a part of it
                os.kill(os.getpid(), signal.SIGKILL)
            return train(*words, **more)

        pipeline.train = killed
        run(setup_of(), place, 3)
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert slices_of(place) == [[1, 1]]
    assert (place / "slice_1").is_dir()
    assert plain(run(setup_of(), place, 3, resume=True)) == plain(found)


def test_where_the_game_is_not_walked_one_more_level_measures_the_last_mixtures(tmp_path):
    """Red before: it was not thought of, and trained alone after all others."""
    setup = setup_of(turns=400, options={"biased": True, "rounds": 2})
    found = run(setup, tmp_path / "x", 1)
    assert [each.is_exact for each in found.iterations] == [False, False]
    assert slices_of(tmp_path / "x") == [[1, 1], [1, 2], [2, 2]]


def test_who_may_sit_where(monkeypatch):
    """Where agents see unlike things each oracle keeps to its player's; else all may sit anywhere.

    A fixed policy takes the seats of one that is like it, which may be the other player's.
    """
    agents = make_env("rock_paper_scissors", 1).agents
    levels = [[["a"], ["b"]], [["c"], ["d"]]]
    assert pipeline._seats(setup_of(), levels) == {}
    wide = replace(agents[1], observation_space=Box(0.0, 1.0, (3,)))
    monkeypatch.setattr(pipeline, "agents_of", lambda *_: (agents[0], wide))
    first, second = ([agent.name] for agent in agents)
    expected = {"a": first, "b": second, "c": first, "d": second}
    assert pipeline._seats(setup_of(), levels) == expected


def test_a_signal_while_a_slice_trains_keeps_those_before(tmp_path, monkeypatch):
    train, count = pipeline.train, iter(range(100))

    def interrupted(*words, **more):
        result = train(*words, **more)
        return replace(result, signal=signal.SIGINT) if next(count) == 1 else result

    monkeypatch.setattr(pipeline, "train", interrupted)
    found = run(setup_of(), tmp_path / "x", 3)
    assert found.ended == INTERRUPTED
    assert len(found.iterations) == 1  # what is known
    assert slices_of(tmp_path / "x") == [[1, 1]]


def test_more_iterations_go_on_where_the_last_ended(tmp_path):
    """No level was begun that was not asked for; those that come now begin later."""
    place = tmp_path / "x"
    run(setup_of(), place, 1)
    assert slices_of(place) == [[1, 1], [1, 1]]
    found = run(setup_of(), place, 2, resume=True)
    assert slices_of(place) == [[1, 1], [1, 1], [2, 2], [2, 2]]
    assert [each.number for each in found.iterations] == [0, 1, 2]


def test_lines_of_slices_that_do_not_follow_are_refused(whole, tmp_path):
    _, directory = whole
    lines = (directory / "psro.jsonl").read_bytes().splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if b'"slice"' in line]
    place = tmp_path / "x"
    place.mkdir()
    for damaged in (
        lines[: at[0] + 1] + lines[at[0] :],
        lines[: at[0]] + lines[at[0] + 1 :],
        lines[: at[1]] + lines[at[1] + 1 :],
        lines[: at[2]] + lines[at[3] :],
        lines[: at[0]] + lines[at[1] : at[1] + 1] + lines[at[0] : at[0] + 1] + lines[at[1] + 1 :],
    ):
        (place / "psro.jsonl").write_bytes(b"".join(damaged))
        with pytest.raises(RunDirectoryError, match="it does not follow"):
            run(setup_of(), place, 3, resume=True)


def test_a_record_of_one_level_has_no_slices(tmp_path):
    run(setup_of(levels=1), tmp_path / "x", 1)
    path = tmp_path / "x" / "psro.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert not slices_of(tmp_path / "x")
    other = tmp_path / "other"
    run(setup_of(), other, 1)
    added = next(
        line
        for line in (other / "psro.jsonl").read_bytes().splitlines(keepends=True)
        if b'"slice"' in line
    )
    at = next(i for i, line in enumerate(lines) if b'"responses"' in line)
    path.write_bytes(b"".join([*lines[:at], added, *lines[at:]]))
    with pytest.raises(RunDirectoryError, match="it does not follow"):
        run(setup_of(levels=1), tmp_path / "x", 1, resume=True)


def test_what_an_earlier_version_asked_for_has_one_level():
    description = setup_of(levels=3).description()
    assert TrainedSetup.of(description).levels == 3
    del description["levels"]
    assert TrainedSetup.of(description).levels == 1


def test_what_cannot_be_is_told_before_anything_is_written(tmp_path):
    for setup, words in (
        (setup_of(levels=0), "levels: a whole number, 1 at least; this is 0"),
        (setup_of(levels=30, turns=20), "levels is 30, and turns 20: .* lower levels"),
        (timed(3, 2.0), "levels is 3, and seconds 2: .* a second at least; .* take levels 2$"),
        (timed(2, 0.5), "take levels 1$"),
        (setup_of(meta_solver="rectified-nash"), "several targets .* or levels 1"),
    ):
        with pytest.raises(UsageError, match=words) as raised:
            run(setup, tmp_path / "x", 1)
        assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="levels is for trained oracles"):
        remuda.psro("kuhn_poker", levels=2)
    assert not (tmp_path / "x").exists()


def timed(levels, seconds):
    setup = setup_of(levels=levels)
    return replace(setup, oracles=replace(setup.oracles, seconds=seconds, turns=None))


def test_slices_of_a_second_are_long_enough_and_those_of_a_record_stay_as_they_are(
    tmp_path, monkeypatch
):
    check_slices(timed(2, 2.0))
    check_slices(timed(1, 0.1))
    monkeypatch.setattr("remuda.double_oracle.trained_setup.LEAST_SLICE", 0.01)
    setup = timed(2, 0.1)
    run(setup, tmp_path / "x", 1)
    monkeypatch.undo()
    run(setup, tmp_path / "x", 1, resume=True)


def test_rates_fall_over_all_slices_of_a_level():
    """By time: a run knows how much of a slice is gone, and not of which."""
    set_to = {}

    class Run:
        policies = ("a", "b")
        config = load_config({"run": {"seconds": 10.0}, "policy": {"learning_rate": 0.1}})
        seconds = 0.0

        def set_hyperparameters(self, values, name):
            set_to.setdefault(name, []).append(values["learning_rate"])

    one, annealing = Run(), LevelAnnealing({"a": (1.0, 0.5), "b": (0.5, 0.0)})
    annealing.on_start(one)
    for one.seconds in (5.0, 10.0, 11.0):
        annealing.on_metrics(one, {})
    assert set_to["a"] == pytest.approx([0.1, 0.075, 0.05, 0.05])
    assert set_to["b"] == pytest.approx([0.05, 0.025, 0.002, 0.002])


def test_what_runs_call_fixed_policies():
    fixed = Fixed(("slice_1:level_1_0_0+greedy", "slice_12:level_4_0_1"))
    assert fixed.names == ["random", "slice_1-level_1_0_0", "slice_12-level_4_0_1"]
    assert np.unique(fixed.names).size == 3
