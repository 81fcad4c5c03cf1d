"""`remuda play`: a game with random or scripted agents, in the terminal or as a GIF."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from PIL import Image
from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from remuda.envs.scripted import ScriptedPolicy, room_for
from remuda.envs.vector_env import MOST_EMPTY, VectorEnv
from remuda.errors import ConfigError
from remuda.types import Array, Bools
from remuda.ui.interrupts import ends_in_order
from remuda.ui.numbers import number
from remuda.ui.played_game import PlayedGame, game_of
from remuda.ui.recording import check_format, write_recording
from remuda.ui.seated import (
    Human,
    LeftError,
    Remembering,
    names_of,
    picture_of,
    take_seats,
)

MISSING = object()
"""Stands where an option was not set."""
LOWER_HALF = "\u2584"
"""A character whose lower half is ink: two pixels, one above the other."""


@dataclass
class Moment:
    """A game at the end of a turn."""

    turn: int
    actions: dict[str, Any]
    """By agent, what those did that acted."""
    returns: dict[str, float | None]
    """By agent, its return so far in this episode; None: it has made no decision there."""
    picture: Array | None
    """[height, width, 3] uint8; None: the game draws none."""
    over: bool = False


def play(
    game: str | None,
    policy: str | None,
    *,
    turns: int,
    seed: int,
    frames_per_second: int,
    out: Path | None,
    options: dict[str, Any],
    console: Console | None = None,
    seats: Mapping[str, str] | None = None,
    sampled: bool = False,
) -> None:
    """Show one episode, or the beginning of it.

    Args:
        game: its name; None: that of the runs whose policies have seats.
        policy: of all seats not in `seats`: `random`, which None stands for, or one of those
            written for the game.
        turns: the most to show.
        seed: of the game and the policies.
        frames_per_second: turns shown in a second.
        out: the GIF or film to write; None: show it in the terminal.
        options: the game's own; where no game is named they go over those of the run.
        console: where to show it.
        seats: by agent, who plays it: `me`, `RUN:policy`, or one that plays without learning.
        sampled: whether policies of runs explore as at the end of training.

    Raises:
        ConfigError: there is no such agent or policy, no picture to write, or no terminal to play
            in.
        UsageError: a policy of a run cannot play there.
    """
    console = console or Console()
    played = game_of(game, options, seats or {}, policy is not None)
    env = played.game.make(1, **played.options)
    if out is not None:
        check_format(out)
    scripted = played.scripted if policy is None else {}
    taken = take_seats(played.game, env, seats or {}, policy, sampled, console, scripted)
    as_in_run = [each.name for each in env.agents if each.name in {*scripted} - {*(seats or {})}]
    notes = [Text(note, style="dim") for note in played.notes(as_in_run)]
    if taken.human is None:  # who plays sees them above each question
        for note in notes:
            console.print(note, soft_wrap=True)
    moments = episode(env, taken.policies, turns, seed)
    if taken.human is not None:
        moments = _played(env, moments, taken.human, console, notes)
    if out is not None:
        write(played, moments, out, frames_per_second, console)
    elif taken.human is not None:
        for _ in moments:
            pass
    elif console.is_terminal:
        with ends_in_order(), Live(console=console, auto_refresh=False) as live:
            for moment in moments:
                live.update(_shown(moment, console), refresh=True)
                time.sleep(1.0 / frames_per_second)
    else:
        for moment in moments:
            if moment.turn:
                console.print(_words(moment))
    env.close()


def write(
    game: PlayedGame,
    moments: Iterator[Moment],
    out: Path,
    frames_per_second: int,
    console: Console,
) -> None:
    """Write the GIF of an episode, and print how the episode stands at its end."""
    played = list(moments)
    pictures = [moment.picture for moment in played if moment.picture is not None]
    if not pictures:
        mode = game.options.get("render_mode", MISSING)
        how = "" if mode is MISSING else f" with env.options.render_mode {mode}"
        raise ConfigError(
            f"{game.game.name} draws no pictures{how}; leave out --out to read what happens"
        )
    write_recording(pictures, out, frames_per_second)
    console.print(f"wrote {out}", soft_wrap=True)  # a path can be copied from the screen
    console.print(_words(played[-1]))


def _played(
    env: VectorEnv, moments: Iterator[Moment], human: Human, console: Console, notes: list[Text]
) -> Iterator[Moment]:
    """The moments of an episode that a person plays in.

    What is to be known of the game, the world, as it is when they are asked, and the turn before
    stand above each question.
    """
    last: Moment | None = None

    def above() -> list[RenderableType]:
        picture = picture_of(env)
        shown: list[RenderableType] = list(notes)
        if picture is not None:
            shown.append(_drawn(picture, console))
        return shown if last is None or not last.turn else [*shown, _words(last)]

    human.above = above
    with ends_in_order(), human.keyboard.reading():
        try:
            for last in moments:
                yield last
        except LeftError:
            console.print("you left")
        for part in above():
            console.print(part)


def episode(
    env: VectorEnv,
    policy: ScriptedPolicy | Sequence[ScriptedPolicy],
    turns: int,
    seed: int,
) -> Iterator[Moment]:
    """The start of an episode and the end of each of its turns, one copy.

    Args:
        env: the game.
        policy: of all seats, or one for each.
        turns: the most to play.
        seed: of the game and the policies.
    """
    policies = [policy] * env.num_agents if callable(policy) else list(policy)
    rng = np.random.default_rng(seed)
    for _ in range(MOST_EMPTY):  # some episodes may be over when they begin
        env.reset(rng.integers(2**62, size=1), np.ones(1, np.bool_))
        if env.active.any():
            break
    names = [spec.name for spec in env.agents]
    observations = [room_for(env, agent) for agent in range(env.num_agents)]
    returns = np.zeros(len(names))
    took_part = env.active[0].copy()
    yield Moment(0, {}, _so_far(names, returns, took_part), picture_of(env))
    for turn in itertools.count(1):
        actions: dict[str, Any] = {}
        env.begin_turn()
        for group in env.turn_groups:
            acts = [bool(env.active[0, agent]) for agent in group]
            for agent in group:
                env.observe(agent, observations[agent])
            chosen = [policies[agent](env, agent, observations[agent], rng) for agent in group]
            for agent, action, acted in zip(group, chosen, acts, strict=True):
                env.act(agent, action)
                took_part[agent] |= acted
                if acted:
                    actions[names[agent]] = _called(env, agent, np.asarray(action)[0])
        result = env.end_turn()
        returns += result.rewards[0]
        for agent in np.flatnonzero((result.terminated | result.truncated)[0]).tolist():
            player: object = policies[agent]
            if isinstance(player, Remembering):
                player.begin()
        over = not env.active.any()
        so_far = _so_far(names, returns, took_part)
        yield Moment(turn, actions, so_far, picture_of(env), over)
        if over or turn >= turns:
            return


def _so_far(names: Sequence[str], returns: Array, took_part: Bools) -> dict[str, float | None]:
    """By agent, its return so far; None: it has made no decision in this episode."""
    found = zip(names, returns.tolist(), took_part.tolist(), strict=True)
    return {name: value if there else None for name, value, there in found}


def _called(env: VectorEnv, agent: int, action: Array) -> Any:
    """What an action is called; its number where the game says nothing."""
    space = env.agents[agent].action_space
    if isinstance(space, Discrete) and env.action_names:
        return names_of(env, agent)[int(action) - int(space.start)]
    return action.tolist()


def _words(moment: Moment) -> Text:
    acted = "  ".join(f"{name} {action}" for name, action in moment.actions.items())
    earned = "  ".join(f"{name} {number(value)}" for name, value in moment.returns.items())
    line = Text.assemble(
        (f"turn {moment.turn}", "bold"), ("  acted  ", "dim"), acted, ("  so far  ", "dim"), earned
    )
    if moment.over:
        line.append("  (over)", "dim")
    return line


def _shown(moment: Moment, console: Console) -> RenderableType:
    if moment.picture is None:
        return _words(moment)
    earned = "  ".join(f"{name} {number(value)}" for name, value in moment.returns.items())
    words = Text(f"turn {moment.turn}   {earned}")
    return Group(_drawn(moment.picture, console), words)


def _drawn(picture: Array, console: Console) -> Segments:
    return blocks(picture, console.width, max(console.height - 3, 4))


def blocks(picture: Array, columns: int, rows: int) -> Segments:
    """A picture in characters, two pixels in each, within so many columns and rows."""
    height, width = picture.shape[:2]
    scale = min(columns / width, 2 * rows / height, 0.25)
    size = max(round(width * scale), 1), max(2 * round(height * scale / 2), 2)
    small = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))
    segments = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
            style = Style(color=Color.from_rgb(*below), bgcolor=Color.from_rgb(*above))
            segments.append(Segment(LOWER_HALF, style))
        segments.append(Segment.line())
    return Segments(segments)
