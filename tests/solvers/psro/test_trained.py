"""Double oracle with trained best responses: what it finds, keeps, and goes on with."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.analysis.trees.exploitability import nash_conv
from remuda.errors import RunDirectoryError, UsageError
from remuda.solvers.psro import rounds as playing
from remuda.solvers.psro import trained
from remuda.solvers.psro.checks import check_setup
from remuda.solvers.psro.games import tree_of
from remuda.solvers.psro.iterations import ENOUGH, INTERRUPTED, SPENT, Setup
from remuda.solvers.psro.matches import gains_of
from remuda.solvers.psro.meta_strategy import MetaStrategy
from remuda.solvers.psro.record import Record, begin, read
from remuda.solvers.psro.settings import PsroSettings
from remuda.solvers.psro.trained import run_trained
from remuda.ui.terminal.live import PlainView

BIASED = {"biased": True, "rounds": 1}


def setup_of(game="rock_paper_scissors", options=BIASED, turns=3200, matches=200, **policy):
    small = {"network": {"hidden": [16]}, "ppo": {"rollout_length": 8}} | policy
    settings = PsroSettings(
        oracle="ppo",
        seconds=None,
        turns=turns,
        policy=small,
        num_envs=64,
        schedule="sequential",
        trials=300,
        seed=3,
        matches=matches,
    )
    return Setup(game, options, settings)


def changed(setup, **settings):
    return replace(setup, settings=setup.settings.model_copy(update=settings))


def run(setup, directory, iterations, enough=0.0, **others):
    setup = changed(setup, iterations=iterations, enough=enough)
    return run_trained(setup, directory, PlainView(), **others)


def plain(found):
    return [{**each.as_line(), "seconds": 0} for each in found.iterations]


def test_a_network_of_oracles_that_is_no_section_is_told(tmp_path):
    with refuses(UsageError, "policy.network"):
        remuda.psro("kuhn_poker", oracle="ppo", policy={"network": 3}, directory=tmp_path / "x")


@pytest.mark.slow
def test_trained_oracles_come_near_the_equilibrium(tmp_path):
    found = run(setup_of(), tmp_path / "x", 5, enough=0.12)
    assert found.ended == ENOUGH
    assert found.last.is_exact
    assert found.nash_conv <= 0.12 < found.iterations[0].nash_conv
    assert found.oracle == "ppo"
    x, y = found.mixtures
    assert found.play[0][0] == pytest.approx([0.25, 0.5, 0.25], abs=0.1)
    assert (len(x), len(y)) == found.last.policies
    line = next(line for line in read(tmp_path / "x") if "responses" in line)
    assert line["steps"] > 0
    # Every pair was played, with fresh matches.
    rounds = [line for line in read(tmp_path / "x") if line.get("round") == 0]
    pairs = [tuple(each["line_up"]) for line in rounds for each in line["line_ups"]]
    assert sorted(pairs) == sorted(set(pairs))
    assert set(pairs) == {(i, j) for i in range(len(x)) for j in range(len(y))}


@pytest.mark.slow
def test_nash_conv_of_trained_oracles_is_exact_in_leduc_poker(tmp_path):
    found = run(setup_of("leduc_poker", {}, 640, 50), tmp_path / "x", 1)
    assert [each.is_exact for each in found.iterations] == [True, True]
    assert found.iterations[0].nash_conv == pytest.approx(4.747222222222222)
    tree = tree_of("leduc_poker")
    assert nash_conv(tree, found.play) == pytest.approx(found.nash_conv, abs=1e-9)


@pytest.mark.slow
def test_where_the_game_is_not_walked_gains_are_lower_bounds(tmp_path):
    """Two rounds are no tree here; the bound is what the responses earned in fresh matches."""
    setup = setup_of(options={"biased": True, "rounds": 2})
    found = run(setup, tmp_path / "x", 1)
    assert [each.is_exact for each in found.iterations] == [False, False]
    assert found.ended == SPENT
    first = found.iterations[0]
    assert first.policies == (1, 1)
    # Against random play rock earns (0 - 1 + 2) / 3 a round.
    assert first.nash_conv == pytest.approx(2 * 2 / 3, abs=0.35)
    assert first.margin > 0.0
    assert found.play == ()


def loop_of(tmp_path, pairs, solver="nash"):
    """A loop in whose meta-game these pairs met: by pair, what player 0 earned in each match."""
    setup = changed(setup_of(options={"biased": True, "rounds": 2}), meta_solver=solver)
    with begin(tmp_path, setup.description()) as record:
        found = trained.TrainedLoop(setup, None, record, PlainView(), None, lambda: False)
    for pair, earned in pairs.items():
        own = np.array(earned)
        sums = [*[len(own)] * 2, own.sum(), -own.sum(), (own**2).sum(), (own**2).sum()]
        found.sums.add(pair, sums)
    found.policies = [[("x", "random")] * (1 + max(at)) for at in zip(*pairs, strict=True)]
    return found


def gains_in(loop):
    strategy = MetaStrategy.independent((np.ones(1), np.ones(1)), 2)
    gains, _, margin = gains_of(loop.sums, loop.counts, strategy)
    return gains, margin


def test_a_bound_from_few_matches_has_a_wide_interval(tmp_path):
    few, many = [1.0, 1.0], [1.0, -1.0] * 1000
    gains, margin = gains_in(loop_of(tmp_path / "few", {(0, 0): [0.0, 1.0], (1, 0): few}))
    assert gains.tolist() == [0.5, 0.0]
    assert margin > 2.0
    gains, margin = gains_in(loop_of(tmp_path / "many", {(0, 0): many, (1, 0): [1.0] * 2000}))
    assert gains.tolist() == [1.0, 0.0]
    # of two choices: the later policy, or no deviation
    assert margin == pytest.approx(2.24 / np.sqrt(2000), rel=0.01)


def test_the_interval_is_that_of_all_among_which_the_best_was_chosen(tmp_path):
    """Of twenty responses that are worth nothing, the best by chance seems to gain."""
    rng, false = np.random.default_rng(0), 0
    for trial in range(60):
        pairs = {(i, 0): rng.choice([-1.0, 1.0], 400) for i in range(21)}
        loop = loop_of(tmp_path / str(trial), pairs, "rectified-nash")
        gains, margin = gains_in(loop)
        false += gains.sum() > margin
    assert false <= 6  # a tenth; with the interval of one it is a fifth


@pytest.mark.process
@pytest.mark.slow_cases("4")
@pytest.mark.parametrize(
    "when", [4, *(pytest.param(when, marks=pytest.mark.slow) for when in (1, 3, 6, 7))]
)
def test_who_was_killed_goes_on_without_playing_anything_twice(tmp_path, monkeypatch, when):
    setup = setup_of(turns=640, matches=50)
    whole = run(setup, tmp_path / "whole", 2)
    place = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        append, count = Record.append, iter(range(1, 100))

        def killed(self, line):
            if next(count) == when:
                os.kill(os.getpid(), signal.SIGKILL)
            append(self, line)

        Record.append = killed
        run(setup, place, 2)
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    known = read(place)[1:]
    assert len(known) == when - 1
    trainings, played = [], []
    train, play = trained.train_exploiters, playing.play_line_ups
    monkeypatch.setattr(
        trained, "train_exploiters", lambda *all_of: trainings.append(1) or train(*all_of)
    )

    def counted(env, line_ups, *others):
        played.extend(line_ups)
        return play(env, line_ups, *others)

    monkeypatch.setattr(playing, "play_line_ups", counted)
    found = run(setup, place, 2, resume=True)
    assert plain(found) == plain(whole)
    assert len(trainings) == 2 - sum("responses" in line for line in known)
    rounds = [line for line in read(tmp_path / "whole")[1:] if "round" in line]
    missing = rounds[sum("round" in line for line in known) :]
    wanted = [tuple(each["line_up"]) for line in missing for each in line["line_ups"]]
    assert sorted(played) == sorted(wanted)


def test_an_interruption_ends_matches_at_once_and_keeps_nothing_of_their_round(tmp_path):
    setup = setup_of(turns=320, matches=200_000)  # minutes, if all were played
    asked = []
    found = run(setup, tmp_path, 1, stopped=lambda: asked.append(1) or len(asked) > 5)
    assert found.ended == INTERRUPTED
    assert 5 < len(asked) < 5000
    assert not found.iterations
    assert not read(tmp_path)[1:]


@pytest.mark.slow
def test_an_interruption_after_training_plays_the_mixture_that_was_known(tmp_path):
    """The responses have joined; what the last mixture plays is of those before them."""

    def stopped():
        return any("responses" in line for line in read(tmp_path)[1:])

    found = run(setup_of(matches=50), tmp_path, 3, stopped=stopped)
    assert found.ended == INTERRUPTED
    assert len(found.iterations) == 1
    assert [policy.tolist() for policy in found.play] == [[[1 / 3] * 3]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_lines_that_do_not_follow_from_those_before_are_refused(tmp_path, rounds):
    """Of a game that is walked, and of one that is not: each line twice, and each left out."""
    setup = setup_of(options={"biased": True, "rounds": rounds}, turns=320, matches=20)
    found = run(setup, tmp_path, 1)
    path = tmp_path / "psro.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 6
    for at in range(1, len(lines)):
        for damaged in (lines[: at + 1] + lines[at:], lines[:at] + lines[at + 1 :]):
            if damaged == lines[:-1]:
                continue  # as if the last had never been
            path.write_bytes(b"".join(damaged))
            with refuses(RunDirectoryError):
                run(setup, tmp_path, 1, resume=True)
            assert path.read_bytes() == b"".join(damaged)
    path.write_bytes(b"".join(lines))
    assert plain(run(setup, tmp_path, 1, resume=True)) == plain(found)


def test_what_cannot_be_is_told_before_anything_is_written(tmp_path):
    place = tmp_path / "none"
    for setup, kind in (
        (changed(setup_of("cleanup", {}), meta_solver="max-entropy-nash"), UsageError),
        (changed(setup_of(), meta_solver="nsh"), UsageError),
    ):
        with refuses(kind) as raised:
            run(setup, place, 1)
        assert "\n" not in str(raised.value)
    assert not place.exists()


def test_a_game_that_is_not_zero_sum_is_told_before_anything_is_written(tmp_path):
    """Red before: where the game is not walked, only after the first oracles were trained."""
    for rounds in (1, 2):
        asked = setup_of("stag_hunt", {"rounds": rounds})
        with refuses(UsageError):
            run(changed(asked, meta_solver="max-entropy-nash"), tmp_path / "x", 1)
    assert not (tmp_path / "x").exists()
    constant = setup_of(options={"biased": True, "rounds": 2})
    check_setup(changed(constant, meta_solver="max-entropy-nash"))


@pytest.mark.slow
def test_rectified_oracles_are_as_many_as_are_played(tmp_path):
    setup = changed(setup_of(turns=320, matches=50), meta_solver="rectified-nash")
    found = run(setup, tmp_path / "x", 2)
    assert found.ended == SPENT
    assert max(found.last.policies) >= 2
