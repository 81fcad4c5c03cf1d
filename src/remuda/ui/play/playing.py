"""`remuda play`: an episode in the terminal, or as a GIF or video."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
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

from remuda.config import by_leaf
from remuda.envs.description import unchanged
from remuda.envs.registry import CHANGED, find_game
from remuda.envs.scripted import ScriptedPolicy, room_for
from remuda.envs.vector_env import MOST_EMPTY, VectorEnv
from remuda.errors import ConfigError, RemudaError
from remuda.training.saved.games import SavedGame, find_saved_game, unmeasured
from remuda.training.saved.policies import Reference
from remuda.types import Array, Bools
from remuda.ui.cli.commands.options import PlayOptions
from remuda.ui.cli.program import ends_in_order
from remuda.ui.play.seats import (
    ME,
    HumanPlayer,
    LeftError,
    is_policy_of_run,
    names_of,
    picture_of,
    take_seats,
)
from remuda.ui.plots.recording import check_format, write_recording
from remuda.ui.terminal.numbers import number

LOWER_HALF = "\u2584"  # half a block: a character shows two pixels, one above the other


@dataclass
class Moment:
    """The state of an episode at the end of a turn."""

    turn: int
    actions: dict[str, Any]  # the actions of agents that acted
    returns: dict[str, float | None]  # returns so far; None: the agent has not acted
    picture: Array | None  # [height, width, 3] uint8; None: the game renders none
    over: bool = False


def play(options: PlayOptions, console: Console | None = None) -> None:
    """Show one episode, or its first turns, in the terminal or in a file."""
    console, seats, out = console or Console(), options.seat, options.out
    policy = options.policy if "policy" in options.model_fields_set else None
    played = game_of(options.game, options.env.options, seats, policy is not None)
    env = played.game.make(1, **played.options)
    if out is not None:
        check_format(out)
    policies, human = take_seats(
        played.game, env, seats, policy, options.sampled, console, played.scripted
    )
    notes = [Text(note, style="dim") for note in played.notes]
    moments = episode(env, policies, options.turns, options.seed)
    if human is not None:
        moments = _with_human(env, moments, human, console, notes)
    else:  # a human player sees the notes above each question
        for note in notes:
            console.print(note, soft_wrap=True)
    if out is not None:
        write(played, moments, out, options.frames_per_second, console)
    elif human is not None:
        deque(moments, maxlen=0)  # plays them
    elif console.is_terminal:
        with ends_in_order(), Live(console=console, auto_refresh=False) as live:
            for moment in moments:
                live.update(_shown(moment, console), refresh=True)
                time.sleep(1.0 / options.frames_per_second)
    else:
        for moment in moments:
            if moment.turn:
                console.print(_line(moment))
    env.close()


def write(
    game: SavedGame, moments: Iterator[Moment], out: Path, frames_per_second: int, console: Console
) -> None:
    """Write the recording of an episode, and print its last turn."""
    played = list(moments)
    pictures = [moment.picture for moment in played if moment.picture is not None]
    if not pictures:
        mode = game.options.get("render_mode", "")
        how = f" with env.options.render_mode {mode}" if "render_mode" in game.options else ""
        raise ConfigError(
            f"{game.game.name} cannot be drawn{how}: it renders no images; leave out --out to "
            "print the episode as text"
        )
    write_recording(pictures, out, frames_per_second)
    console.print(f"wrote {out}", soft_wrap=True)  # so that the path can be copied from the screen
    console.print(_line(played[-1]))


def _with_human(
    env: VectorEnv,
    moments: Iterator[Moment],
    human: HumanPlayer,
    console: Console,
    notes: list[Text],
) -> Iterator[Moment]:
    """Yield the moments of an episode, and show the last one above each question to the human."""
    last: Moment | None = None

    def above() -> list[RenderableType]:
        picture = picture_of(env)
        shown: list[RenderableType] = list(notes)
        if picture is not None:
            shown.append(_drawn(picture, console))
        return shown if last is None or not last.turn else [*shown, _line(last)]

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
    env: VectorEnv, policy: ScriptedPolicy | Sequence[ScriptedPolicy], turns: int, seed: int
) -> Iterator[Moment]:
    """Yield the start of an episode in one environment copy, then the end of each turn."""
    policies = [policy] * env.num_agents if callable(policy) else list(policy)
    rng = np.random.default_rng(seed)
    for _ in range(MOST_EMPTY):  # an episode may start without active agents
        env.reset(rng.integers(2**62, size=1), np.ones(1, np.bool_))
        if env.active.any():
            break
    names = [spec.name for spec in env.agents]
    observations = [room_for(env, agent) for agent in range(env.num_agents)]
    returns = np.zeros(len(names))
    has_acted = env.active[0].copy()
    yield Moment(0, {}, _returns(names, returns, has_acted), picture_of(env))
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
                has_acted[agent] |= acted
                if acted:
                    actions[names[agent]] = _action_name(env, agent, np.asarray(action)[0])
        result = env.end_turn()
        returns += result.rewards[0]
        for agent in np.flatnonzero((result.terminated | result.truncated)[0]).tolist():
            if begin := getattr(policies[agent], "begin", None):
                begin()
        over = not env.active.any()
        yield Moment(turn, actions, _returns(names, returns, has_acted), picture_of(env), over)
        if over or turn >= turns:
            return


def _returns(names: Sequence[str], returns: Array, has_acted: Bools) -> dict[str, float | None]:
    found = zip(names, returns.tolist(), has_acted.tolist(), strict=True)
    return {name: value if acted else None for name, value, acted in found}


def _action_name(env: VectorEnv, agent: int, action: Array) -> Any:
    space = env.agents[agent].action_space
    if isinstance(space, Discrete) and env.action_names:
        return names_of(env, agent)[int(action) - int(space.start)]
    return action.tolist()


def _line(moment: Moment) -> Text:
    actions = "  ".join(f"{name} {action}" for name, action in moment.actions.items())
    turn = (f"turn {moment.turn}", "bold")
    parts = (turn, ("  acted  ", "dim"), actions, ("  so far  ", "dim"), _in_words(moment.returns))
    return Text.assemble(*parts, ("  (over)" if moment.over else "", "dim"))


def _shown(moment: Moment, console: Console) -> RenderableType:
    if moment.picture is None:
        return _line(moment)
    caption = Text(f"turn {moment.turn}   {_in_words(moment.returns)}")
    return Group(_drawn(moment.picture, console), caption)


def _in_words(returns: Mapping[str, float | None]) -> str:
    return "  ".join(f"{name} {number(value)}" for name, value in returns.items())


def _drawn(picture: Array, console: Console) -> Segments:
    return blocks(picture, console.width, max(console.height - 3, 4))


def blocks(picture: Array, columns: int, rows: int) -> Segments:
    """Draw a picture in characters of two pixels each, within this many columns and rows."""
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


DEFAULT_GAME = "treasure_hunt"


def game_of(
    name: str | None,
    options: Mapping[str, Any],
    seats: Mapping[str, str],
    are_all_seated: bool = False,
) -> SavedGame:
    """Return the named game, or the game of the first run in `seats`.

    `options` override the run's options. The notes say which options, and which players of seats
    that the user did not assign, come from the run.
    """
    players = [player for player in seats.values() if is_policy_of_run(player)]
    found = find_saved_game(name, options, players, None if are_all_seated else seats)
    if found is None:
        _check_scripted(seats)
        return SavedGame(find_game(DEFAULT_GAME), options, {})
    if name is not None:
        return found
    options, explicit_keys = unmeasured(found.options), by_leaf(options)
    scripted = {} if are_all_seated else found.scripted
    shown = by_leaf(unchanged(options) | dict(options.get(CHANGED, {})))
    settings = [f"{k} {value}" for k, value in shown.items() if k not in explicit_keys]
    settings += [f"{agent} played by {x}" for agent, x in scripted.items() if agent not in seats]
    note = f"{found.game.name} as in {Reference.parse(players[0]).run}"
    note += f", with {', '.join(settings)}" if settings else ""
    return SavedGame(found.game, options, found.opened, scripted, (note, *found.notes))


def _check_scripted(seats: Mapping[str, str]) -> None:
    """Refuse players that are neither policies of runs nor scripted in the default game."""
    game = find_game(DEFAULT_GAME)
    for agent, player in seats.items():
        if player == ME:
            continue
        try:
            game.policy(player)
        except RemudaError as error:
            reference = Reference.parse(player)
            if os.path.isdir(reference.run):
                reference.open()  # raises an error about the run
            raise ConfigError(
                f"--seat {agent}={player}: there is no run {reference.run} (a policy of a run is "
                f"RUN:policy, or RUN:policy@best). No game is named, so {game.name} is "
                f"played: {error}"
            ) from None
