"""The table of other people's worlds, quickly: that it can be made."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from refusals import refuses
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.specs import policy_specs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_world_is_measured(tmp_path):
    """A fiftieth of the turns, without the other library; what is not installed is left out."""
    words = [sys.executable, "worlds.py", "--quick", "--alone", "--out", str(tmp_path / "found")]
    done = subprocess.run(words, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "found").read_text())["figures"]
    named = {row["world"] for row in found["rows"]}
    assert {"spread", "speaker", "tag", "lbf_coop", "rware", "pendulum", "tic_tac_toe"} <= named
    for row in found["rows"]:
        if row["world"] != "tic_tac_toe":
            assert float(row["greedy"].split()[0]) == float(row["greedy"].split()[0])
    missed = {bar["what"] for bar in found["bars"] if not bar["met"]}
    assert missed <= {"rware: better than random"}, "where too little is learned so soon to tell"


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """The modules of benchmarks, which record in a folder of the test's own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import across
    import recording
    import worlds
    import worlds_known
    import worlds_rows
    import worlds_summary

    monkeypatch.setattr(recording, "FIGURES", tmp_path)
    monkeypatch.setattr(recording, "ROOT", tmp_path)
    monkeypatch.setattr(worlds_rows, "FIGURES", tmp_path)
    monkeypatch.setattr(worlds_summary, "FIGURES", tmp_path)
    return SimpleNamespace(
        recording=recording,
        worlds=worlds,
        known=worlds_known,
        rows=worlds_rows,
        summary=worlds_summary,
        across=across,
    )


def outcomes(programs, greedy, sampled):
    made = programs.worlds.Outcome
    return [made(g, s, 60.0, [(60.0, 1000, s)]) for g, s in zip(greedy, sampled, strict=True)]


def test_the_other_library_is_compared_by_what_counts_of_each(programs, monkeypatch):
    """The better play and its error; greedy play, which is far worse here, says nothing."""
    monkeypatch.setattr(programs.worlds, "floor_of", lambda name: 0.0)
    found = {
        programs.worlds.OURS: outcomes(programs, [-100.0, -900.0], [9.0, 11.0]),
        programs.worlds.SHARED: outcomes(programs, [-100.0, -900.0], [49.0, 51.0]),
        programs.worlds.SEPARATE: outcomes(programs, [-100.0, -900.0], [-90.0, 10.0]),
    }
    results = programs.recording.Results("trial")
    programs.worlds.tell(results, "multiwalker", found, quick=False)
    (bar,) = results.bars
    assert bar.held_to == "at least 47.2"  # 50 - 2 sqrt(1 + 1)
    assert not bar.met


def test_sides_that_both_learn_are_compared_by_play_across(programs, monkeypatch, tmp_path):
    """What adversaries earn of their own prey tells as much of the prey."""
    monkeypatch.setattr(programs.worlds, "floor_of", lambda name: 0.0)
    worlds = programs.worlds
    found = {
        worlds.OURS: outcomes(programs, [20.0, 20.0], [20.0, 20.0]),
        worlds.OURS_SHARED: outcomes(programs, [30.0, 30.0], [30.0, 30.0]),
        worlds.SHARED: outcomes(programs, [50.0, 50.0], [50.0, 50.0]),
    }
    results = programs.recording.Results("worlds.tag_both")
    worlds.tell(results, "tag_both", found, quick=False)
    assert results.bars == [], "so far they were not played across"
    across = {worlds.OURS_ACROSS: [40.0, 41.0], worlds.THEIRS_ACROSS: [12.5, 10.5]}
    for which, greedy in across.items():
        played = outcomes(programs, greedy, [5.0, 6.0])
        found[which] = [replace(outcome, seconds=0.0, curve=[]) for outcome in played]
    results = programs.recording.Results("worlds.tag_both")
    worlds.tell(results, "tag_both", found, quick=False)
    (bar,) = results.bars
    assert (bar.figure, bar.held_to) == (40.5, "at least 8.5")  # 11.5 - 2 * 3 / 2, by seeds
    assert {row["turns"] for row in results.rows} == {1000}, "of those that were trained"
    results.write()
    told = programs.summary.recorded("tag_both")
    assert (told.words(), told.others()) == ("40.50 ± 0.50, across", "11.50 ± 1.00, across")
    assert (told.reached(), told.turns()) == (40.5, 1000)
    assert told.verdict(beside=True) == "at least 8.5: met"


def test_the_other_librarys_policies_are_played_in_their_seats(programs, tmp_path):
    """Greedily the likeliest action; else each as often as its probability."""
    probabilities = np.array([0.1, 0.6, 0.3])
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    with torch.no_grad():
        layers[1].weight.zero_()
        layers[1].bias.copy_(torch.as_tensor(np.log(probabilities)))
    torch.save([(["a", "b"], layers)], tmp_path / "kept")
    rows, random = np.zeros((30_000, 4), np.float32), np.random.default_rng(0)
    for sampled in (False, True):
        plays = programs.across.players(tmp_path / "kept", sampled)
        assert list(plays) == ["a", "b"]
        actions = plays["b"](None, 1, rows, random)
        shares = np.bincount(actions, minlength=3) / len(rows)
        wanted = probabilities if sampled else np.array([0.0, 1.0, 0.0])
        assert np.abs(shares - wanted).max() < 0.015


def test_who_hunts_and_who_is_hunted_across(programs, monkeypatch, tmp_path):
    """Each side by its better play: hunters earn most, and the hunted leave them least."""
    worlds = programs.worlds
    both = worlds.WORLDS["tag_both"]
    seats = [agent for agents in both.kinds.values() for agent in agents]
    monkeypatch.setattr(worlds, "players", lambda _, plays: dict.fromkeys(seats, ("SB3", plays)))
    monkeypatch.setattr(worlds, "playing", lambda policy, plays: (policy, plays))
    earns = {("SB3", False): 10.0, ("SB3", True): 20.0, "adversaries": {False: 40.0, True: 30.0}}
    leaves = {("SB3", False): 3.0, ("SB3", True): 2.0, ("prey", False): 1.0, ("prey", True): 5.0}
    earns |= {("adversaries", plays): value for plays, value in earns.pop("adversaries").items()}

    class Trained(dict):
        def evaluate(self, episodes, scripted):
            assert episodes == both.episodes
            hunters = {scripted[agent] for agent in both.kinds["adversaries"]}
            assert len(hunters) == 1
            earned = earns[hunters.pop()] + leaves[scripted["agent_0"]]
            returns = [earned if agent.startswith("adversary") else -9.0 for agent in seats]
            return SimpleNamespace(agents=seats, returns=np.array([returns]))

    run = Trained({kind: kind for kind in both.kinds})
    monkeypatch.setattr(worlds.remuda, "load", lambda directory: run)
    found = {
        which: worlds.across(both, tmp_path, tmp_path, ways)
        for which, ways in worlds.ACROSS.items()
    }
    assert [(each.greedy, each.sampled) for each in found.values()] == [
        (42.0, 32.0),
        (11.0, 21.0),
        (41.0, 31.0),
        (12.0, 22.0),
    ]


def test_policies_of_remuda_are_played_as_they_play(programs):
    class Policy:
        def act(self, observations, *, deterministic, rng):
            assert rng == "draws"
            return observations + deterministic

    for sampled in (False, True):
        play = programs.across.playing(Policy(), sampled)
        assert play(None, 0, np.zeros(3), "draws").tolist() == [1.0 - sampled] * 3


def test_seeds_whose_sides_were_not_played_across_are_trained_anew(programs):
    worlds = programs.worlds
    options = SimpleNamespace(
        alone=False, quick=False, shared=False, times=1.0, separate=False, seeds=3, peer_seeds=2
    )
    both = worlds.WORLDS["tag_both"]
    plan = [(which, seed) for seed, which in worlds.planned(both, options)]
    assert [which for which, seed in plan if seed == 1][3:] == list(worlds.ACROSS)
    assert [which for which, seed in plan if seed == 2] == [worlds.OURS, worlds.OURS_SHARED]
    (made,) = outcomes(programs, [1.0], [1.0])
    had = dict.fromkeys(plan, made)
    assert worlds.with_whole_seeds(had, plan) == (had, [])
    del had["SB3 against SB3", 1], had[worlds.OURS_SHARED, 2]
    left, again = worlds.with_whole_seeds(had, plan)
    assert again == [1]
    assert list(left) == [key for key in plan if key[1] == 0] + [(worlds.OURS, 2)]
    spread = [(which, seed) for seed, which in worlds.planned(worlds.WORLDS["spread"], options)]
    assert not {which for which, _ in spread} & {*worlds.ACROSS}


def test_a_row_that_was_stopped_takes_no_whole_ones_place(programs, tmp_path):
    results = programs.recording.Results("worlds.spread")
    results.row({"world": "spread", "library": "Remuda", "seeds": 3})
    results.write()
    whole = (tmp_path / "worlds.spread.json").read_bytes()
    again = programs.recording.Results("worlds.spread")
    again.so_far = "1 of 3 runs"
    again.row({"world": "spread", "library": "Remuda", "seeds": 1})
    again.write()
    assert (tmp_path / "worlds.spread.json").read_bytes() == whole
    part = tmp_path / "worlds.spread.part.json"
    assert json.loads(part.read_text())["so_far"] == "1 of 3 runs"
    again.so_far = ""
    again.write()
    assert not part.exists()
    assert (tmp_path / "worlds.spread.json").read_bytes() != whole


def test_one_policy_plays_each_kind_of_agents(programs):
    """And its curve is that of the kind whose returns count."""
    pytest.importorskip("mpe2")
    both, tag = (programs.worlds.WORLDS[name] for name in ("tag_both", "tag"))
    tree = overlay(both.settings(), programs.worlds.sharing(both))
    config = load_config(tree | {"game": both.game})
    env = make_env(both.game, 1, **both.options)
    assert [spec.name for spec in policy_specs(config, env.agents)] == ["adversaries", "prey"]
    seats = [agent for kind in both.kinds.values() for agent in kind]
    assert sorted(seats) == sorted(spec.name for spec in env.agents)
    env.close()
    told = {
        f"{name}/mean_return": np.array([r]) for name, r in (("prey", -9.0), ("adversaries", 5))
    }
    told |= {"seconds": np.ones(1), "turns": np.full(1, 7)}
    curve = programs.worlds.curve_of(both, SimpleNamespace(metrics=lambda: told), 3)
    assert curve == [(1.0, 7, 5.0)]
    assert programs.worlds.sharing(tag) == programs.known.ONE_FOR_ALL
    options = SimpleNamespace(shared=False, quick=False)
    assert programs.worlds.ways(both, options) == programs.worlds.ways(tag, options)
    assert len(programs.worlds.ways(programs.worlds.WORLDS["speaker"], options)) == 1


@pytest.fixture
def row(programs, monkeypatch):
    """Makes a row of spread by a command; tells what was trained, which is made up here."""
    monkeypatch.setattr(programs.worlds, "floor_of", lambda name: -27.0)
    monkeypatch.setattr(programs.worlds, "make_env", lambda *_, **__: SimpleNamespace(close=print))

    def make(words, stop_after=100, commit="aaa"):
        trained = []

        def ours(world, turns, seed, defaults, shared, directory):
            if len(trained) == stop_after:
                raise KeyboardInterrupt
            trained.append((seed, shared))
            (made,) = outcomes(programs, [-seed - 0.25], [-10.0 * seed - shared])
            return replace(made, commit=commit)

        monkeypatch.setattr(programs.worlds, "ours", ours)
        monkeypatch.setattr(sys, "argv", ["worlds.py", "spread", "--alone", *words.split()])
        programs.worlds.main()
        return trained

    return make


def recorded(folder, kind="json"):
    return (folder / f"worlds.spread.{kind}").read_text()


def test_a_row_goes_on_with_the_seeds_that_it_has(row, tmp_path):
    """Its figures are those of the same row in one go."""
    assert row("--seeds 3 --record") == [(seed, way) for seed in range(3) for way in (False, True)]
    whole, curves = json.loads(recorded(tmp_path)), recorded(tmp_path, "csv")
    (tmp_path / "worlds.spread.json").unlink()
    assert len(row("--seeds 2 --record --go-on")) == 4, "nothing was recorded: it begins"
    assert row("--seeds 3 --record --go-on") == [(2, False), (2, True)]
    again = json.loads(recorded(tmp_path))
    assert (again["figures"], again["runs"]) == (whole["figures"], whole["runs"])
    assert recorded(tmp_path, "csv") == curves


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("spread --seeds 2", "spread --seeds=5 --record --go-on", True),
        ("spread --alone", "spread --times 1 --separate --peer-seeds 1", True),
        ("spread --times=1", "spread --alone", True),
        ("spread --alone --share 0.5", "spread --times 1", False),
        ("spread --times 1", "spread --times 2", False),
        ("spread --alone", "spread --alone --shared", False),
    ],
)
def test_the_other_library_may_come_to_a_row_that_is_there(programs, one, other, alike):
    assert programs.rows.train_alike(one, other) is alike


def test_a_row_that_was_stopped_goes_on_there(row, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        row("--seeds 3 --record", stop_after=3)
    assert row("--seeds=3 --go-on --record") == [(1, True), (2, False), (2, True)]
    assert not list(tmp_path.glob("*.part.*"))
    assert len(json.loads(recorded(tmp_path))["runs"]) == 6


def test_a_row_tells_of_all_commits_that_it_is_of(row, tmp_path):
    for i, name in enumerate(("aaa", "bbb", "ccc"), 1):
        row(f"--seeds {i} --record --go-on", commit=name)
    assert json.loads(recorded(tmp_path))["commit"] == "aaa, bbb, ccc"


@pytest.mark.parametrize("words", ["--share 0.5", "--defaults", "--share=0.5"])
def test_a_row_does_not_go_on_with_runs_of_another_kind(row, tmp_path, words):
    row("--seeds 1 --record")
    before = recorded(tmp_path)
    if words == "--defaults":  # a row of its own, of which there is none
        assert len(row(f"--seeds 1 --record --go-on {words}")) == 2
    else:
        with refuses(SystemExit):
            row(f"--seeds 2 --record --go-on {words}")
    assert recorded(tmp_path) == before


def test_a_row_that_goes_on_loses_no_run(row, tmp_path):
    """Red before: it was written with fewer seeds than it had."""
    row("--seeds 3 --record")
    before = recorded(tmp_path)
    with refuses(SystemExit):
        row("--seeds 2 --record --go-on")
    assert recorded(tmp_path) == before
    assert row("--seeds 3 --go-on --json") == []


def test_a_row_of_before_runs_were_told_one_by_one_is_not_gone_on_with(row, tmp_path):
    row("--seeds 1 --record")
    record = json.loads(recorded(tmp_path))
    del record["runs"]
    (tmp_path / "worlds.spread.json").write_text(json.dumps(record))
    with refuses(SystemExit):
        row("--seeds 2 --record --go-on")


def test_a_row_that_was_begun_anew_and_stopped_goes_on_though_the_one_before_cannot(row, tmp_path):
    """Red before: it was refused for the row before, and what had been trained was lost."""
    row("--seeds 1 --record")
    record = json.loads(recorded(tmp_path))
    del record["runs"]
    (tmp_path / "worlds.spread.json").write_text(json.dumps(record))
    with pytest.raises(KeyboardInterrupt):
        row("--seeds 2 --record", stop_after=3)
    assert row("--seeds 2 --record --go-on") == [(1, True)]
    assert len(json.loads(recorded(tmp_path))["runs"]) == 4


def written(programs, folder, name, command, greedy, floor=0.0):
    results = programs.recording.Results(name)
    row = {"world": name, "library": "Remuda", "seeds": 1, "greedy": greedy, "sampled": greedy}
    results.row({**row, "floor": f"{floor}", "turns": 1000})
    record = results.record() | {"command": f"python benchmarks/worlds.py x {command}"}
    (folder / f"{name}.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("floor", "chosen", "defaults", "share", "enough"),
    [
        (0.0, "100.0", "90.0", "0.90", 1),
        (0.0, "1000.0", "896.0", "0.90", 0),  # by its own digits, not by those that are shown
        (0.0, "1.0", "1.0", "1.00", 1),
        (0.0, "1.0", "200.0", "200.00", 1),
        (-368.0, "-400.0", "-500.0", "none: nothing was learned", 0),
        (0.0, "0.0", "0.0", "none: nothing was learned", 0),
        (0.0, "1.0", "nan", "nan", 0),
    ],
)
def test_the_share_of_defaults(programs, tmp_path, floor, chosen, defaults, share, enough):
    written(programs, tmp_path, "worlds.speaker", "--alone", chosen, floor)
    written(programs, tmp_path, "worlds.speaker.defaults", "--defaults", defaults, floor)
    results = programs.summary.summary()
    assert [row["share"] for row in results.rows] == [share]
    (bar,) = results.bars
    assert bar.figure == enough
    assert bar.what.startswith("of 1 worlds, 1 tried")


def test_a_row_for_which_nothing_was_chosen_tells_what_defaults_come_to(programs, tmp_path):
    written(programs, tmp_path, "worlds.pendulum", "--alone", "-150.0", -1200.0)
    written(programs, tmp_path, "worlds.speaker", "--alone", "-10.0", -27.0)
    results = programs.summary.summary()
    assert [row["share"] for row in results.rows] == ["", "1.00"]
    assert results.rows[1]["PPO's defaults"] == "the row itself"
    (bar,) = results.bars
    assert bar.what.startswith("of 2 worlds, 1 tried: ")
    assert bar.figure == 1


def test_rows_of_defaults_are_those_of_their_algorithm(programs, tmp_path):
    written(programs, tmp_path, "worlds.speaker", "--alone", "1.0")
    written(programs, tmp_path, "worlds.speaker.iqn", "--defaults iqn --alone", "0.5")
    (row,) = programs.summary.summary().rows
    assert row["IQN's defaults"] == "0.5 after 1,000"
    written(programs, tmp_path, "worlds.speaker.defaults", "--defaults iqn --alone", "0.5")
    with refuses(ConfigError):
        programs.summary.summary()


def test_leduc_poker_is_told_by_what_it_can_be_exploited(programs, tmp_path):
    """The less, the better; its share counts from play at random, 2.37."""
    rows = (("", [0.1, 0.3], 4000), (".defaults", [0.5, 0.6], 3000))  # of as many games
    for kind, pools, turns in rows:
        results = programs.recording.Results(f"leduc.self_play.open_spiel{kind}")
        for seed, pool in enumerate(pools):
            results.row({"seed": seed, "games": 900, "pool": pool, "turns": turns + seed})
        results.bar("self-play: games", 900, most=1000)
        results.bar("self-play: exploitability of the pool", sum(pools) / 2, most=0.5)
        record = results.record() | {"command": f"python leduc.py self_play --{kind[1:]}"}
        (tmp_path / f"{results.name}.json").write_text(json.dumps(record))
    (row,) = programs.summary.summary().rows
    assert (row["random"], row["Remuda"]) == ("2.37", "exploitability 0.20 ± 0.10")
    assert (row["bar"], row["seeds"], row["turns"]) == ("at most 0.5: met", 2, 4000)
    told = "exploitability 0.55 ± 0.05", f"{(2.37361 - 0.55) / (2.37361 - 0.2):.2f}"
    assert (row["PPO's defaults"], row["share"]) == told


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("spread --quick --alone --record", "is no row"),
        ("spread --alone --share 0", "--share: above 0"),
        ("spread --alone --peer-seeds 1", "--peer-seeds: 1 to 5"),
        ("spread --defaults iqn", "add --alone"),
        ("spread --alone --separate", "--separate: with --times"),
        ("spread speaker --go-on --alone", "--go-on: name one world"),
        ("tic_tac_toe --go-on --alone", "--go-on: name one world"),
        ("spread --def", "unrecognized arguments"),
    ],
)
def test_what_was_set_is_not_ignored(words, told):
    asked = [sys.executable, "worlds.py", *words.split()]
    done = subprocess.run(asked, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr


def test_the_perfect_player_makes_no_mistake(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from perfect import CROSS, EMPTY, NOUGHT, best_moves

    empty = (EMPTY,) * 9
    assert best_moves(empty, CROSS)[0] == 0  # a draw, if both play well
    wins = (CROSS, CROSS, EMPTY, NOUGHT, NOUGHT, EMPTY, EMPTY, EMPTY, EMPTY)
    assert best_moves(wins, CROSS) == (1, (2,))
    assert best_moves(wins, NOUGHT) == (1, (2, 5))  # at once, or by two threats
    lost = (CROSS, CROSS, EMPTY, CROSS, NOUGHT, EMPTY, EMPTY, EMPTY, EMPTY)
    assert best_moves(lost, NOUGHT)[0] == -1
