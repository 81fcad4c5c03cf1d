"""`remuda games` and `remuda play`: what they show, and what they write."""

import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from remuda.envs.registry import GAMES, find_game
from remuda.ui.cli.commands.options import PlayOptions
from remuda.ui.cli.main import run
from remuda.ui.play.games import print_game, print_games
from remuda.ui.play.playing import blocks, episode, play


def told(function, *args, width=80, **options):
    console = Console(width=width, file=io.StringIO(), **options)
    function(*args, console=console)
    return console.file.getvalue()


def test_every_game_is_listed_within_80_columns():
    text = told(print_games)
    assert all(len(line) <= 88 for line in text.splitlines())
    for game in GAMES.values():
        assert game.name in text
        assert game.summary in text
    assert "10 in turn" in text
    assert "greedy_walker 155.7" in text
    assert "10 x 2 x 2 actions" in text


@pytest.mark.parametrize("name", GAMES)
def test_the_rules_of_a_game_are_told(name):
    game = find_game(name)
    text = told(lambda console: print_game(game, console))
    assert len(text.splitlines()) > 10
    for option in game.make(1).options():
        assert f"--env.options.{option} " in text
    for policy in ("random", *game.scripted):
        assert policy in text


def test_an_episode_is_shown_turn_by_turn():
    env = find_game("tag").make(1)
    moments = list(episode(env, find_game("tag").policy("chase_and_flee"), 100, seed=1))
    assert [moment.turn for moment in moments] == list(range(21))
    assert moments[-1].over
    assert not moments[-2].over
    assert sum(moments[-1].returns.values()) >= 20 * 40
    assert set(moments[3].actions) == {f"agent_{i}" for i in range(5)}
    again = list(episode(env, find_game("tag").policy("chase_and_flee"), 100, seed=1))
    assert [m.returns for m in again] == [m.returns for m in moments]
    assert len(list(episode(env, find_game("tag").policy("random"), 7, seed=1))) == 8


def test_a_gif_of_a_scripted_policy(tmp_path, capsys):
    out = tmp_path / "play.gif"
    words = ["play", "cleanup", "--policy", "division_of_labour", "--turns", "6"]
    assert run([*words, "--out", str(out), "--env.options.num_agents", "4"]) == 0
    assert f"wrote {out}" in capsys.readouterr().out
    with Image.open(out) as image:
        assert image.size == (31 * 16, 21 * 16)
        assert image.n_frames > 3


def test_a_game_without_pictures_is_read(capsys):
    assert run(["play", "kuhn_poker", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("turn 1  acted  agent_0 ")
    assert lines[-1].endswith("(over)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("play nothing", "there is no game called 'nothing'"),
        ("play tag --policy x", "tag has no scripted policy 'x'; it has random, chase_and_flee"),
        ("play kuhn_poker --out x.gif", "kuhn_poker cannot be drawn"),
        ("play tag --env.options.nothing 3", "tag has no such option"),
        (
            "play tag --env.options.num_envs 3",
            "is not an option of a game; set env.num_envs to train",
        ),
        (
            "train tag --env.options.num_envs 3 --run.turns 9",
            "not an option of a game; set env.num",
        ),
        ("games nothing", "there is no game called 'nothing'"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, capsys):
    assert run(words.split()) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_pictures_in_a_terminal():
    console = Console(width=80, height=30, file=io.StringIO(), force_terminal=True)
    play(PlayOptions(game="tag", policy="random", turns=2, frames_per_second=50), console)
    shown = console.file.getvalue()
    assert shown.count("\u2584") >= 3 * 44 * 22
    assert "turn 2" in shown

    picture = np.zeros((64, 32, 3), np.uint8)
    picture[:32] = (255, 0, 0)
    console = Console(
        width=80,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    console.print(blocks(picture, 80, 20))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 8  # 64 rows at a quarter, two in each character
    assert lines[0].count("\u2584") == 8
    assert "48;2;255;0;0" in lines[0]
    assert "48;2;0;0;0" in lines[7]
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(blocks(picture, 4, 20))
    assert console.file.getvalue().splitlines()[0].count("\u2584") == 4
