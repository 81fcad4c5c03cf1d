"""Focal play of scripted policies: without a run, and among the policies of one."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import remuda
from refusals import refuses
from remuda.envs.games.array_game import TurnArrays
from remuda.envs.registry import name_game
from remuda.errors import ConfigError, RunDirectoryError, UsageError, UserCodeError
from remuda.evaluation.results import Limits
from remuda.training.python_settings import name_policy
from remuda.types import AgentSpec
from remuda.ui.analysis.focal import evaluate_policy_among
from remuda.ui.cli.main import run as cli
from short_runs import trained

DILEMMA, BRIGADE = "prisoners_dilemma", "bucket_brigade"
SHARED = 0.5


class Gifts(TurnArrays):
    """One turn of four agents: a gift (1) costs 1, and each gift is worth `worth` to all."""

    def __init__(self, num_envs=1, worth=SHARED):
        space = Box(0.0, 1.0, (1,), np.float32)
        self._make_arrays(num_envs, [AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(4)])
        self.turn_groups, self._worth = ((0, 1, 2, 3),), worth
        self._gives = np.zeros((num_envs, 4), np.int64)

    def reset(self, seeds, mask):
        self.active[mask] = True

    def observe(self, agent, out):
        out[...] = 1.0

    def act(self, agent, actions):
        self._gives[:, agent] = actions

    def end_turn(self):
        on = self.active[:, 0].copy()
        total = self._gives[on].sum(1, keepdims=True)
        self._rewards[on] = self._worth * total - self._gives[on]
        self._terminated[on] = True
        self.active[on] = False
        return self._result


def gives(env, agent, observations, rng):
    return np.ones(len(observations), np.int64)


def takes(env, agent, observations, rng):
    return np.zeros(len(observations), np.int64)


@pytest.fixture(scope="module")
def brigade(tmp_path_factory):
    """A run of Bucket Brigade with a scenario, and a seat that is reserved."""
    env = {"options": {"scenario": "minimal_specialization"}, "scripted": {"agent_3": "random"}}
    return trained(tmp_path_factory.mktemp("focal") / "brigade", BRIGADE, env=env)


def test_the_diagram_of_a_matrix_game_is_its_table():
    found = remuda.evaluate_among(
        "cooperate", "defect", range(3), 4, game=DILEMMA, options={"rounds": 10}
    )
    assert (found.focal, found.background, found.seats) == ("cooperate", "defect", 2)
    assert [each.focal for each in found.returns[1:]] == [0.0, 30.0]
    assert [each.background for each in found.returns[:2]] == [10.0, 50.0]
    assert [each.all_seats for each in found.returns] == [10.0, 25.0, 30.0]
    assert np.isnan([found.returns[0].focal, found.returns[2].background]).all()


def test_functions_and_games_of_your_own_have_a_diagram():
    found = remuda.evaluate_among(gives, takes, range(5), 6, game=Gifts, options={"worth": 2.0})
    assert (found.focal, found.background) == ("gives", "takes")
    for each in found.returns:
        value = 2.0 * each.focal_seats
        assert each.focal_seats == 0 or (each.focal, each.focal_error) == (value - 1.0, 0.0)
        assert each.focal_seats == 4 or (each.background, each.background_error) == (value, 0.0)


def test_a_stopped_evaluation_has_played_all_numbers_equally_often():
    """Red before: each round played all placements, so the ends of a diagram had few episodes."""
    names = name_policy(gives, "policy"), name_policy(takes, "policy")
    turns = iter([False, False, False])
    limits = Limits(interrupted=lambda: next(turns, True))
    found = evaluate_policy_among(
        *names, range(5), 400, game=name_game(Gifts), options={}, limits=limits
    )
    assert found.cut
    played = [each.episodes for each in found.returns]
    assert 0 < min(played) <= max(played) < 400
    assert max(played) - min(played) <= 1


@pytest.mark.parametrize(("episodes", "error"), [(2, 2.0), (3, 4 / 3), (7, 0.0)])
def test_placements_count_equally(episodes, error):
    """Agent 0 always earns 5, and agent 1 earns 1, however often each is focal."""
    found = remuda.evaluate_among("bach", "bach", 1, episodes, game="bach_or_stravinsky")
    (only,) = found.returns
    assert (only.focal, only.background, only.all_seats) == (3.0, 3.0, 3.0)
    assert (only.focal_error, only.background_error) == pytest.approx((error, error))


def test_a_policy_among_itself_has_one_mean():
    found = remuda.evaluate_among("owners_duty", "owners_duty", 2, 300, game=BRIGADE)
    assert (found.focal, found.background) == ("owners_duty", "owners_duty (2)")
    (only,) = found.returns
    assert abs(only.focal - only.background) < 5 * (only.focal_error + only.background_error)
    everywhere = remuda.evaluate_among("owners_duty", "random", 4, 300, game=BRIGADE)
    assert abs(only.all_seats - everywhere.returns[0].focal) < 5 * 2**0.5 * only.focal_error


def test_firefighters_of_the_brigade_pay_for_resters():
    """Where learners rest: they earn more than workers, but less than if they worked."""
    found = remuda.evaluate_among(
        "firefighter",
        "always_rest",
        range(5),
        120,
        game=BRIGADE,
        options={"scenario": "minimal_specialization"},
    )
    focal, background = ([getattr(each, name) for each in found.returns]
                         for name in ("focal", "background"))  # fmt: skip
    assert focal[1] < focal[2] < focal[4]
    assert background[0] < background[1] < background[3]
    assert focal[4] > 0.0 > background[0]
    assert background[1] > focal[1] > background[0]


def test_a_scripted_policy_visits_a_run_in_its_game(brigade):
    """The run's scenario and its reserved seat hold; options of the caller override its own."""
    found = remuda.evaluate_among("always_rest", brigade, (0, 1, 3), 8, game=BRIGADE)
    assert (found.focal, found.background, found.seats) == ("always_rest", "brigade", 3)
    assert found.scripted == {"agent_3": "random"}
    assert np.isfinite([each.all_seats for each in found.returns]).all()
    other = remuda.evaluate_among(
        "always_rest", brigade, 3, 8, game=BRIGADE, options={"scenario": "rest_trap"}
    )
    assert other.returns[0].focal > 500.0 > found.returns[2].focal
    # the same seats are played by the same policies, whoever is named as the visitor
    resident = brigade.evaluate_among("always_rest", 0, 8)
    alone = remuda.evaluate_among("always_rest", brigade, 3, 8, game=BRIGADE)
    assert resident.returns[0].background == alone.returns[0].focal


def test_seats_reserved_by_either_run_stay_reserved(brigade, tmp_path):
    """Red before: the reserved seat of a run in the background became a focal seat."""
    scenario = dict(brigade.config.env.options)
    free, other = (
        trained(tmp_path / name, BRIGADE, env={"options": scenario, "scripted": scripted})
        for name, scripted in (("free", {}), ("other", {"agent_3": "always_rest"}))
    )
    found = free.evaluate_among(brigade, range(4), 6)
    assert (found.seats, found.scripted) == (3, {"agent_3": "random"})
    assert found.notes == ()
    assert [each.episodes for each in found.returns] == [6] * 4
    visitor = remuda.evaluate_among("always_rest", brigade, range(4), 6, game=BRIGADE)
    assert found.returns[0].background == visitor.returns[0].background
    back = brigade.evaluate_among(free, 3, 6)
    assert (back.seats, back.scripted) == (3, {"agent_3": "random"})
    with refuses(UsageError, "agent_3", "random", "always_rest"):
        other.evaluate_among(brigade, 1, 2)


def test_reserved_seats_are_named_in_the_table(brigade):
    found = brigade.evaluate_among("always_rest", 1, 4)
    assert "agent_3, which always plays random" in repr(found)
    assert "agent_3" not in repr(remuda.evaluate_among("random", "random", 1, 4, game=BRIGADE))


@pytest.mark.parametrize("focal", [np.arange(3), {0, 1, 2}, (np.int64(0), 1, 2), iter(range(3))])
def test_numbers_of_focal_seats_may_be_any_collection(focal):
    found = remuda.evaluate_among("cooperate", "defect", focal, 2, game=DILEMMA)
    assert [each.focal_seats for each in found.returns] == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "background", "focal", "game", "error"),
    [
        ("nobody", "defect", 1, DILEMMA, UsageError),
        ("cooperate", "nobody", 1, DILEMMA, UsageError),
        ("cooperate", "defect", 3, DILEMMA, UsageError),
        ("cooperate", "defect", 1.5, DILEMMA, UsageError),
        ("cooperate", "defect", 1, "kuhn_poker", UsageError),
        ("cooperate", "runs/nothing", 1, DILEMMA, RunDirectoryError),
        (7, "defect", 1, DILEMMA, UsageError),
        ("cooperate", 7, 1, DILEMMA, UsageError),
        ("cooperate", "", 1, DILEMMA, UsageError),
        ("cooperate", "defect", np.array(1.5), DILEMMA, UsageError),
        ("random", "random", 1, "gymnasium:CartPole-v1", UsageError),
    ],
)
def test_impossible_arguments_are_refused(policy, background, focal, game, error):
    with refuses(error):
        remuda.evaluate_among(policy, background, focal, 2, game=game)


def test_what_does_not_fit_the_game_is_refused(brigade):
    with refuses(UsageError, "bucket_brigade", DILEMMA):
        remuda.evaluate_among("defect", brigade, 1, 2, game=DILEMMA)
    with refuses(UsageError, "agent_4", "env.options.num_agents"):
        remuda.evaluate_among("random", brigade, 1, 2, game=BRIGADE, options={"num_agents": 5})
    with refuses(UsageError, "is one policy"):
        brigade.evaluate_among(f"{brigade.path}:agent_0", 1, 2)
    with refuses(ConfigError, "speed"):
        remuda.evaluate_among("cooperate", "defect", 1, 2, game=DILEMMA, options={"speed": 1})


def test_faults_of_your_own_code_are_named():
    def broken(env, agent, observations, rng):
        return 1 / 0

    def no_game(num_envs=1):
        raise OSError("no display")

    for policy, game in ((broken, Gifts), (gives, no_game)):
        with pytest.raises(UserCodeError, match=r"test_focal_scripted\.py, line"):
            remuda.evaluate_among(policy, takes, 1, 2, game=game)


def test_the_command_draws_a_diagram_without_a_run(tmp_path, capsys):
    words = ["evaluate", DILEMMA, "--policy", "cooperate", "--background", "defect"]
    words += ["--focal", "0", "1", "2", "--episodes", "2", "--env.options.rounds", "3"]
    kinds = ((".png", b"\x89PNG"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml"))
    for kind, begins in kinds:
        assert cli([*words, "--out", str(tmp_path / f"a{kind}")]) == 0
        assert (tmp_path / f"a{kind}").read_bytes().startswith(begins)
    assert "number of other agents that play cooperate" in (tmp_path / "a.svg").read_text()
    capsys.readouterr()
    assert cli([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["background"] for each in found["returns"]] == [3.0, 15.0, None]


@pytest.mark.parametrize("name", ["no/a.png", "folder.png", "a.gif", "a", "file/a.png"])
def test_a_picture_that_cannot_be_written_is_refused_before_play(name, tmp_path, capsys):
    """Red before: it was refused after the last episode."""
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    words = ["evaluate", DILEMMA, "--policy", "cooperate", "--background", "defect"]
    assert cli([*words, "--episodes", "2", "--out", str(tmp_path / name)]) != 0
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert "out: " in written.err


def test_a_time_limit_leaves_no_diagram_or_one_of_whole_episodes(tmp_path, capsys):
    words = ["evaluate", BRIGADE, "--policy", "firefighter", "--background", "always_rest"]
    picture = tmp_path / "a.png"
    words += ["--focal", "0", "2", "--episodes", "200000", "--seconds", "1", "--json"]
    assert cli([*words, "--out", str(picture)]) == 0
    written = capsys.readouterr()
    assert "of 400,000 episodes" in written.err
    found = json.loads(written.out)
    assert found["cut"]
    counts = [each["episodes"] for each in found["returns"]]
    assert 0 < sum(counts) < 400_000
    assert picture.exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((DILEMMA, "--background", "defect"), "--policy"),
        ((DILEMMA, "--policy", "cooperate"), "--background"),
        (("RUN", "--policy", "firefighter", "--background", "random"), "is a run"),
        (("RUN", "--background", "random", "--env.options.num_agents", "3"), "--policy"),
        (("RUN", "--env.options.num_agents", "3"), "env.options.num_agents"),
        (
            (DILEMMA, "--policy", "cooperate", "--background", "defect", "--checkpoint", "best"),
            "--checkpoint",
        ),
        ((DILEMMA, "--policy", "x", "--background", "defect"), "cooperate, defect"),
        (("tag", "--policy", "cooperate", "--background", "random"), "chase_and_flee"),
        (("myrun", "--policy", "random", "--background", "random"), "with --policy, name a game"),
        (("runs/no", "--policy", "random", "--background", "random"), "with --policy, name a game"),
        ((DILEMMA, "--policy", "cooperate", "--background", ""), "background"),
    ],
)
def test_the_command_names_what_is_wrong(words, named, brigade, capsys):
    words = [str(brigade.path) if word == "RUN" else word for word in words]
    assert cli(["evaluate", *words]) != 0
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert named in line


def test_a_directory_with_the_name_of_a_scripted_policy(brigade, tmp_path, monkeypatch):
    """A scripted policy keeps its name beside a directory that is no run; `random` always does."""
    monkeypatch.chdir(tmp_path)
    for name in ("firefighter", "plain"):
        (tmp_path / name).mkdir()
    for name in ("random", "always_rest"):
        (tmp_path / name).symlink_to(brigade.path)
    for name in ("firefighter", "random"):
        found = brigade.evaluate_among(name, 0, 4)
        scripted = remuda.evaluate_among(name, name, 0, 4, game=BRIGADE,
            options=brigade.config.env.options)  # fmt: skip
        assert found.background == name
        assert (found.seats, scripted.seats) == (3, 4)
    with refuses(ConfigError, "./always_rest"):
        brigade.evaluate_among("always_rest", 1, 2)
    with refuses(ConfigError, "./always_rest"):
        remuda.evaluate_among("random", "always_rest", 1, 2, game=BRIGADE)
    for name in ("random", "always_rest"):
        found = brigade.evaluate_among(f"./{name}", 1, 6)
        assert found.background == name
        assert found.returns[0].all_seats == pytest.approx(
            brigade.evaluate_among(brigade, 1, 6).returns[0].all_seats
        )
    with refuses(RunDirectoryError, "plain"):
        brigade.evaluate_among("plain", 1, 2)
    with refuses(RunDirectoryError, "firefighter"):
        brigade.evaluate_among("./firefighter", 1, 2)
