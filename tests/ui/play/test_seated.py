"""`remuda play --seat`: a person at the keyboard, policies of runs, and those that do not learn."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tty

import numpy as np
import pytest
from rich.console import Console

import remuda
from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import find_game
from remuda.errors import ConfigError, UsageError
from remuda.training.run import train
from remuda.ui.cli.arguments import parse_flags
from remuda.ui.cli.commands.options import PlayOptions
from remuda.ui.cli.main import run
from remuda.ui.dashboard.player import played as played_on_a_page
from remuda.ui.play.playing import Moment, episode, game_of, play, write
from remuda.ui.play.seats import TrainedPlayer, take_seats
from remuda.ui.terminal.keyboard import BACKSPACE, END, ENTER, Keyboard
from remuda.ui.terminal.live import PlainView
from ui.made_runs import a_run


class Terminal:
    """A pseudo-terminal that stands in for standard input, with keys that are typed already."""

    def __init__(self, keys):
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)  # else Ctrl-D would end a line before it is read
        os.write(self.master, keys)

    def isatty(self):
        return True

    def fileno(self):
        return self.slave

    def close(self):
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def typed(monkeypatch):
    """Play with keys that are typed; returns what is shown."""
    made = []

    def shown(game, keys, seats, *, turns=50, policy=None, sampled=False, **options):
        terminal = Terminal(keys + b"\x04")  # who is asked once more than typed leaves
        made.append(terminal)
        monkeypatch.setattr("sys.stdin", terminal)
        console = Console(width=100, height=30, file=io.StringIO(), force_terminal=True)
        chosen = {} if policy is None else {"policy": policy}
        chosen |= {"game": game, "turns": turns, "seat": seats, "sampled": sampled}
        play(PlayOptions(**chosen, frames_per_second=50, env={"options": options}), console)
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue())

    yield shown
    for terminal in made:
        terminal.close()


def test_keys_are_read_one_by_one():
    terminal = Terminal(b"q7\x1b[A\x1b[B\x1bOC\x1b[D\x1b[3~\r\x7f\xc3\xa4\x04")
    keyboard = Keyboard(terminal.slave)
    with keyboard.reading():
        keys = []
        while not keys or keys[-1] != END:
            keys.append(keyboard.key())
    assert keys == ["q", "7", "up", "down", "right", "left", ENTER, BACKSPACE, END]
    terminal.close()


def test_a_lone_escape_is_no_key():
    terminal = Terminal(b"\x1b")
    keyboard = Keyboard(terminal.slave)
    os.write(terminal.master, b"3")
    with keyboard.reading():
        assert keyboard.key() == "3"
    terminal.close()


def test_the_parts_of_an_arrow_may_come_one_after_the_other(monkeypatch):
    """As over a slow line: a part is read before the next is there."""
    terminal = Terminal(b"\x1b")
    parts, read = [b"[", b"A"], os.read

    def slow(descriptor, size):
        data = read(descriptor, size)
        if descriptor == terminal.slave and parts:
            os.write(terminal.master, parts.pop(0))
        return data

    monkeypatch.setattr(os, "read", slow)
    keyboard = Keyboard(terminal.slave)
    with keyboard.reading():
        assert keyboard.key() == "up"
    assert not parts
    terminal.close()


def test_two_people_play_connect_four(typed):
    both = {"agent_0": "me", "agent_1": "me"}
    shown = typed("connect_four", b"0101010", both)
    assert "agent_0, your turn (a key; q quits): 0  1  2  3  4  5  6" in shown
    assert shown.count("your turn") == 7
    assert "agent_0 1.00  agent_1 -1.00" in shown
    assert "(over)" in shown
    assert shown.count("\u2584") > 500


def test_what_is_not_allowed_is_said_and_asked_again(typed):
    both = {"agent_0": "me", "agent_1": "me"}
    shown = typed("connect_four", b"0009x1q2", both, height=2)
    assert "0 is not a legal action; choose from: 1  2  3  4  5  6" in shown
    assert "9 is not a legal action" in shown
    assert shown.count("your turn") == 4
    assert "you left" in shown


def test_more_than_ten_actions_are_typed_as_numbers(typed):
    both = {"agent_0": "me", "agent_1": "me"}
    shown = typed("connect_four", b"119\x7f\r\x7f0\r99\r5\r\x04", both, width=12)
    assert "your turn (a number and Enter; q quits)" in shown
    assert "99 is not a legal action" in shown
    assert "agent_0 11  agent_1 0" in shown
    assert "you left" in shown


def test_arrows_move_where_actions_are_called_so(typed):
    shown = typed("tag", b"\x1b[A\x1b[D1", {"agent_2": "me"}, turns=3)
    assert "agent_2, your turn (a key; q quits): 0 up  1 down  2 left  3 right" in shown
    for turn, action in enumerate(("up", "left", "down"), 1):
        line = next(part for part in shown.split("\n") if f"turn {turn}" in part)
        assert f"agent_2 {action}" in line
    assert shown.count("your turn") == 3


def test_words_stand_in_for_pictures_and_waiting_is_not_asked_for(typed):
    shown = typed("kuhn_poker", b"2", {"agent_0": "me"})
    assert "agent_0: you hold the" in shown
    assert "nothing has been done" in shown
    assert "1 pass  2 bet" in shown
    assert shown.count("your turn") == 1
    assert "wait" in shown  # of the other, in the first turn


def test_numbers_are_shown_where_a_game_says_nothing(typed):
    shown = typed("support:Tape", b"3q", {"agent_1": "me"})
    assert "agent_1: observation 0 1 0 0 1" in shown
    assert "agent_1 3" in shown


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of two games; one stacks frames, in one policies are recurrent."""
    base = tmp_path_factory.mktemp("trained")
    for game, policy in (
        ("tag", {"algorithm": "ppo", "n_frames": 2, "network": {"hidden": (8,), "recurrent": 8}}),
        ("kuhn_poker", {"algorithm": "ppo", "network": {"hidden": (8,)}}),
    ):
        tree = {
            "game": game,
            "schedule": "sequential",
            "policy": policy,
            "env": {"num_envs": 2},
            "run": {"turns": 60, "directory": base / game, "evaluate_episodes": 0},
            "checkpoint": {"evaluate_episodes": 0},
        }
        train(load_config(tree), PlainView())
    return base


@pytest.mark.slow
def test_policies_of_runs_choose_as_when_they_are_asked(trained):
    game, loaded = find_game("tag"), remuda.load(trained / "tag")
    env = game.make(1)
    who = {f"agent_{i}": f"{trained / 'tag'}:agent_{i}" for i in range(5)} | {
        "agent_3": str(trained / "tag")
    }
    seats, _ = take_seats(game, env, who, None, False, Console())
    assert [each.policy.name for each in seats] == [f"agent_{i}" for i in range(5)]
    twins = [loaded[f"agent_{i}"] for i in range(5)]
    asked = [0]

    def check(own, twin):
        def choose(env, agent, observations, random):
            found = own(env, agent, observations, random)
            assert found.tolist() == twin.act(observations).tolist()
            asked[0] += 1
            return found

        return choose

    policies = [check(o, t) for o, t in zip(seats, twins, strict=True)]
    assert len(list(episode(env, policies, 15, seed=3))) == 16
    assert asked[0] == 5 * 15


@pytest.mark.slow
def test_sampled_policies_explore(trained):
    game = find_game("kuhn_poker")
    env, run_of = game.make(1), str(trained / "kuhn_poker")
    seen = np.zeros((1, 8), np.float32)
    env.reset(np.array([3]), np.ones(1, np.bool_))
    env.observe(0, seen)
    found = {}
    for sampled in (False, True):
        seats, _ = take_seats(game, env, {"agent_0": run_of}, None, sampled, Console())
        own = seats[0]
        assert isinstance(own, TrainedPlayer)
        random = np.random.default_rng(0)
        found[sampled] = {int(own(env, 0, seen, random)[0]) for _ in range(50)}
    assert len(found[False]) == 1
    assert found[True] == {1, 2}


@pytest.mark.slow
def test_a_person_plays_against_a_policy_of_a_run(typed, trained):
    who = {"agent_0": "me", "agent_1": f"{trained / 'kuhn_poker'}:agent_1"}
    shown = typed("kuhn_poker", b"2", who)
    assert shown.count("your turn") == 1
    assert "(over)" in shown


@pytest.mark.slow
def test_a_game_between_policies_is_shown_without_a_terminal(trained, capsys):
    words = ["play", "kuhn_poker", "--seat", f"agent_0={trained / 'kuhn_poker'}", "agent_1=random"]
    assert run(words) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("(over)")


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """Runs of tag that differ in options, and one of connect four with a seat that is taken."""
    base = tmp_path_factory.mktemp("unlike")
    for name, game, env in (
        ("three", "tag", {"options": {"num_agents": 3}}),
        ("said", "tag", {"options": {"num_agents": 3, "max_turns": 20}}),  # as by default
        ("short", "tag", {"options": {"num_agents": 3, "max_turns": 7}}),
        (
            "hunted",
            "tag",
            {"options": {"num_agents": 3}, "scripted": {"agent_2": "chase_and_flee"}},
        ),
        ("taken", "connect_four", {"options": {"width": 5}, "scripted": {"agent_1": "tactician"}}),
    ):
        tree = {
            "game": game,
            "schedule": "sequential",
            "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}},
            "env": {"num_envs": 1, **env},
            "run": {"turns": 20, "directory": base / name, "evaluate_episodes": 0},
            "checkpoint": {"evaluate_episodes": 0},
        }
        train(load_config(tree), PlainView())
    pole = "gymnasium:CartPole-v1"
    limit = "gymnasium.wrappers:TimeLimit(max_episode_steps=3)"
    options = {"sutton_barto_reward": True}
    measured = {"x": "last"}
    env = {"wrappers": [limit], "options": options, "episode_metrics": measured}
    a_run(base / "pole", game=pole, env=env)
    return base


@pytest.mark.slow
def test_a_game_that_is_not_named_is_as_in_the_first_run_of_its_seats(unlike, capsys):
    """With no agents but these, and episodes as long."""
    short, three, said = (unlike / name for name in ("short", "three", "said"))
    assert run(["play", "--seat", f"agent_0={short}", f"agent_2={short}:agent_1"]) == 0
    first, played = capsys.readouterr().out.split("\n", 1)
    assert first == f"tag as in {short}, with num_agents 3, max_turns 7"
    assert played.count("turn ") == 7
    assert "agent_2" in played
    assert "agent_3" not in played
    over = ["--env.options.max_turns", "4"]
    assert run(["play", "--seat", f"agent_0={short}", f"agent_1={three}", *over]) == 0
    first, played = capsys.readouterr().out.split("\n", 1)
    assert first == f"tag as in {short}, with num_agents 3"
    assert played.startswith("turn 1 ")  # and they differ in nothing else
    assert played.count("turn ") == 4
    assert run(["play", "--seat", f"agent_0={said}", f"agent_1={three}", "--turns", "1"]) == 0
    assert capsys.readouterr().out.split("\n")[1].startswith("turn 1 ")
    assert run(["play", "--seat", f"agent_0={three}", f"agent_1={short}"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[1].startswith(f"{short} learned with env.options.max_turns 7; all play tag as in")


def test_a_game_that_is_named_is_as_it_is_said(unlike, capsys):
    assert run(["play", "tag", "--seat", f"agent_0={unlike / 'short'}", "--turns", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("turn 1 ")
    assert "agent_4" in told


@pytest.mark.slow
def test_seats_that_a_run_left_to_a_scripted_policy_stay_with_it(unlike, trained):
    played = game_of(None, {}, {"agent_0": str(unlike / "taken")})
    own = f"connect_four as in {unlike / 'taken'}, with width 5"
    assert played.notes == (f"{own}, agent_1 played by tactician",)
    seats = {"agent_0": str(unlike / "taken")}
    assert game_of(None, {}, seats, are_all_seated=True).notes == (own,)
    env = played.game.make(1, **played.options)
    game, tactician = played.game, played.game.policy("tactician")
    taken, _ = take_seats(game, env, seats, None, False, Console(), played.scripted)
    assert taken[1] is tactician
    taken, _ = take_seats(game, env, seats, "random", False, Console(), played.scripted)
    assert taken[1] is game.policy("random")
    for seats in ({"agent_0": f"{unlike / 'taken'}:agent_1"}, {"agent_1": str(unlike / "taken")}):
        with refuses(UsageError):
            take_seats(game, env, seats, None, False, Console(), played.scripted)


def test_nothing_is_said_of_seats_that_the_user_gave_to_others(unlike, capsys):
    """Red before: they were told to be as in the first run, whoever had them."""
    hunted, three = unlike / "hunted", unlike / "three"
    words = ["play", "--seat", f"agent_0={hunted}", f"agent_1={three}", "--turns", "1"]
    for more, told in (([], True), (["--policy", "random"], False)):
        assert run([*words, *more]) == 0
        shown = capsys.readouterr().out.replace("\n", "")
        assert (f"{three} learned with env.scripted.agent_2 nobody; all play" in shown) is told
    seats = {"agent_0": str(hunted), "agent_1": str(three)}
    assert len(game_of(None, {}, seats).notes) == 2
    assert len(game_of(None, {}, seats | {"agent_2": "random"}).notes) == 1


@pytest.mark.parametrize(("policy", "told"), [([], True), (["--policy", "random"], False)])
def test_who_takes_a_seat_is_told_where_they_take_it(policy, told, unlike, capsys):
    assert run(["play", "--seat", f"agent_0={unlike / 'taken'}", "--turns", "1", *policy]) == 0
    assert ("agent_1 played by tactician" in capsys.readouterr().out) is told


def test_wrappers_are_those_of_the_run(unlike, monkeypatch):
    """Which had no episodes of 500 steps."""
    monkeypatch.setenv("REMUDA_TRUST_CODE", "1")  # this run was written by hand, so not signed
    played = game_of(None, {}, {"agent_0": str(unlike / "pole")})
    env = played.game.make(1, **played.options)
    assert len(list(episode(env, played.game.policy("random"), 50, seed=0))) == 4
    assert played.options["sutton_barto_reward"]
    (note,) = played.notes
    assert "env.wrappers" in note
    assert "sutton_barto_reward True" in note
    assert "episode_metrics" not in note


def test_why_a_game_draws_nothing_is_told(tmp_path):
    """A run may have had no pictures."""
    options = {"render_mode": "ansi"}
    lake = a_run(tmp_path / "lake", game="gymnasium:FrozenLake-v1", env={"options": options})
    played = game_of(None, {}, {"agent_0": str(lake)})
    with refuses(ConfigError, "env.options.render_mode"):
        write(played, iter([Moment(0, {}, {}, None)]), tmp_path / "x.gif", 8, Console())


def test_what_is_said_of_an_option_leaves_the_rest_of_it(tmp_path):
    own = a_run(tmp_path / "nested", game="tag", env={"options": {"parts": {"a": 1, "b": 2}}})
    played = game_of(None, {"parts": {"a": 9}}, {"agent_0": str(own)})
    assert played.options == {"parts": {"a": 9, "b": 2}}
    assert played.notes == (f"tag as in {own}, with parts.b 2",)


def test_who_plays_sees_which_game_it_is(typed, unlike):
    shown = typed(None, b"3", {"agent_0": "me", "agent_1": str(unlike / "short")}, turns=1)
    told = f"tag as in {unlike / 'short'}, with num_agents 3, max_turns 7"
    assert "".join(told.split()) in "".join(shown.split())  # lines are broken anywhere


def test_a_run_that_is_called_as_a_scripted_policy_is_not_taken_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "chase_and_flee", game="tag")
    seat, turn = ["--seat", "agent_0=chase_and_flee"], ["--turns", "1"]
    said = (
        "chase_and_flee is a run, and a scripted policy of tag: write ./chase_and_flee for the run"
    )
    for game in ([], ["tag"]):  # red before where the game is named: who is written for it played
        assert run(["play", *game, *seat, *turn]) == 2
        assert said in capsys.readouterr().err
    assert run(["play", "tag", "--seat", "agent_0=./chase_and_flee", *turn]) == 1
    assert "chase_and_flee has saved no policy yet" in capsys.readouterr().err


REST = ("turns", "sampled", "live", "may_ask")  # of a request of a page


def test_a_page_looks_for_no_run_where_a_policy_is_scripted(unlike, tmp_path, monkeypatch):
    """Red before: it played a run of that name, of whatever game."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tactician").symlink_to(unlike / "three")
    asked = {"run": str(unlike / "taken"), "seats": {"agent_0": "tactician"}, "seed": 0}
    told = next(iter(played_on_a_page(asked | dict.fromkeys(REST, 0), lambda _: "")))
    assert told["seats"] == {"agent_0": "tactician", "agent_1": "tactician"}
    assert told["versions"] == {}


def test_without_a_game_or_a_run_treasure_hunt_is_played(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "random", game="tag")  # which is no policy's name
    a_run(tmp_path / "sweep" / "seed_0", game="tag")
    (tmp_path / "greedy_walker").mkdir()  # nor is this a run
    assert run(["play", "treasure_hunt", "--turns", "1"]) == 0
    plain = capsys.readouterr().out
    for seats in ([], ["--seat", "agent_0=random"]):
        assert run(["play", *seats, "--turns", "1"]) == 0
        assert capsys.readouterr().out == plain
    assert run(["play", "--seat", "agent_0=greedy_walker", "--turns", "1"]) == 0
    assert capsys.readouterr().out.startswith("turn 1 ")
    for who, said in (
        (
            "nosuch:player_0",
            "agent_0=nosuch:player_0: there is no run nosuch (a policy of a run is RUN:policy",
        ),
        ("sweep", "sweep is no run directory but contains runs: name one of them"),
        ("chase_and_flee", "treasure_hunt is played: treasure_hunt has no scripted policy"),
        ("~nobody_here/run", "is no run directory: it does not exist"),
        ("x" * 300, "there is no run xxx"),
    ):
        assert run(["play", "--seat", f"agent_0={who}"]) in (1, 2)
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1


def test_seats_are_told_in_three_ways():
    one = ["tag", "--seat", "agent_0=me", "agent_1=a:b=c", "--turns", "3", "--seat=agent_2=x"]
    seats = {"agent_0": "me", "agent_1": "a:b=c", "agent_2": "x"}
    found = parse_flags(one, PlayOptions, positional="game")
    assert found == {"game": "tag", "turns": 3, "seat": seats}


@pytest.mark.slow_cases(
    "tag --seat agent_0=me-a human needs a terminal, but the input or output is not one",
    "tag --seat.agent_0 me-a human needs a terminal",
)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tag --seat agent_9=me", "--seat agent_9: tag has no agent agent_9; it has agent_0, ag"),
        ("tag --seat agent_0=you", "--seat agent_0=you: tag has no scripted policy 'you'; it has"),
        ("tag --seat", "--seat needs AGENT=POLICY, as in --seat agent_0=random"),
        ("tag --seat me", "--seat me: it needs AGENT=POLICY, as in --seat agent_0=random"),
        ("tag --seat agent_0=me", "a human needs a terminal, but the input or output is not one"),
        ("tag --seat.agent_0 me", "a human needs a terminal"),
        (
            "gymnasium:Pendulum-v1 --seat agent_0=me",
            "can choose only among numbered actions (Discrete)",
        ),
        ("kuhn_poker --seat agent_0={tag}", "cannot play agent_0 of kuhn_poker: it observes"),
        ("tag --seat agent_0={tag}:x", "there is no policy 'x'; there are agent_0, agent_1"),
        ("tag --sampled true", "--sampled is for policies of runs, but --seat names none"),
        (
            "kuhn_poker --policy random --seat agent_0=random agent_1=random",
            "--policy random is for seats that --seat does not name, but --seat names all of",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, trained, capsys):
    assert run(["play", *words.format(tag=trained / "tag").split()]) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


class Session:
    """`remuda` in a process of its own, in a pseudo-terminal."""

    def __init__(self, *words):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "remuda", *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=self._own_terminal,
        )

    def _own_terminal(self):
        import fcntl

        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

    def wait_for(self, words, seconds=120):
        end = time.monotonic() + seconds
        while words not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 65536).decode("ascii", "ignore")

    def type(self, keys):
        self.shown = ""
        os.write(self.master, keys)

    def end(self):
        code = self.process.wait(60)
        after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        return code, after == self.before


@pytest.mark.slow
def test_a_game_in_a_terminal_from_beginning_to_end():
    session = Session("play", "tag", "--seat", "agent_0=me", "--turns", "2")
    session.wait_for("3 right")
    session.type(b"\x1b[B")
    session.wait_for("3 right")
    assert "agent_0 down" in session.shown
    session.type(b"3")
    session.wait_for("turn 2")
    assert session.end() == (0, True)


@pytest.mark.slow_cases("ctrl-c")
@pytest.mark.parametrize("how", ["ctrl-c", pytest.param("sigterm", marks=pytest.mark.slow)])
def test_the_terminal_is_as_it_was_after_an_interruption(how):
    session = Session("play", "tag", "--seat", "agent_0=me")
    session.wait_for("3 right")
    if how == "ctrl-c":
        session.type(b"\x03")
    else:
        session.process.send_signal(signal.SIGTERM)
    code, restored = session.end()
    assert code in (130, 143)
    assert restored
