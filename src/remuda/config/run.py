"""The configuration of all that is not a policy: the game, processes, checkpoints, the end."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)

from remuda.config.cluster import IN_CLUSTER
from remuda.config.plain import Options
from remuda.config.sections import Count, CountOrNone, Only, Place, Section, Size, at_most

CHILDREN = Only(
    when=lambda config: config.schedule != "sequential", needs="schedule async or lockstep"
)
"""Marks what is about processes that play and train."""
RESTARTED = Only(
    when=lambda config: config.schedule != "sequential" and config.supervision.restarts > 0,
    needs="schedule async or lockstep, and supervision.restarts",
)
"""Marks what says when roles begin anew."""
ALONE = Only(
    when=lambda config: config.schedule != "sequential" and not config.cluster.used,
    needs="schedule async or lockstep, and one node",
)
"""Marks what is about such processes where there is no other node."""


class EnvConfig(Section):
    """The game and how many copies of it are played."""

    num_envs: Size = 1
    """Independent copies of the game that the actor steps together."""
    observe_together: bool = False
    """Let all agents observe at the start of the turn and choose in one batched pass, which is much
    faster with few copies; their actions still take effect in the game's order."""
    scripted: dict[str, str] = {}
    """By agent, who takes its seat without learning: `random`, one that `remuda games GAME` lists,
    or your own as `module:callable`. In a population the other seats are dealt."""
    workers: Size = 1
    """Processes that step an actor's copies, for slow environments in Python; 1: the actor does.
    With more, a resumed run begins new episodes."""
    check: bool = True
    """Check every value that the game hands over for presence, shape and finiteness, and end with a
    message that names the agent, the copy and the turn. It costs 0.4 to 3.4% of a turn."""
    options: Options = {}
    """The game's own parameters by name; `remuda games` lists them."""
    wrappers: tuple[str, ...] = ()
    """Put round each copy of an environment of Gymnasium, PettingZoo or their like, the first one
    innermost: `module:Name`, with values where it takes any, as in
    `gymnasium.wrappers:TimeLimit(max_episode_steps=100)` or `supersuit:frame_stack_v1(4)`."""
    episode_metrics: dict[str, Literal["last", "sum", "mean", "min", "max"]] = {}
    """Numbers that such an environment tells in `info`, by name, as metrics of its episodes: which
    of an episode's values counts, or what is made of them. `speed` is the mean over agents that
    tell it, `agent_0/speed` that of one, and `*/speed` one metric for each agent."""

    @property
    def made_with(self) -> dict[str, Any]:
        """All that `make_env` takes for it: its options, and what is changed about each copy."""
        around = {
            "wrappers": self.wrappers,
            "episode_metrics": self.episode_metrics,
            "observe_together": self.observe_together,
        }
        named = {f"env.{name}": value for name, value in around.items() if value}
        return dict(self.options) | named  # which no option of a game is called


MOST_THREADS = at_most(1024, "as no update is faster with more")
"""Of a learner process; many more cannot be started, which is told by a library's log alone."""


class LearnersConfig(Section):
    """Where policies are trained."""

    processes: Annotated[Size | Literal["auto"], CHILDREN] = "auto"
    """Learner processes. `auto`: as few as keep up with the actors, as far as cores and memory
    allow; policies share a process in groups."""
    threads: Annotated[PositiveInt, MOST_THREADS] | Literal["auto"] = "auto"
    """Threads of each learner process. `auto`: 1, or more where cores are left over and updates are
    much faster with them."""
    devices: Annotated[
        tuple[str, ...],
        Only(
            when=lambda config: (
                not config.policy.device
                or any(own.get("device") == "" for own in config.policies.values())
            ),
            needs="a policy whose policy.device is empty",
        ),
    ] = ()
    """Devices dealt to the policies in turn, such as `cuda:0 cuda:1`. None named: every GPU there
    is, or else the CPU."""
    nice: Annotated[Annotated[int, Field(ge=0, le=19)] | Literal["auto"], CHILDREN] = "auto"
    """How far a learner process steps back in the scheduler's queue, so that the game goes on.
    `auto`: not at all where every process has a core, else 3, half the share of an actor: with
    more, other programs on a busy machine leave it next to nothing."""


class ActorConfig(Section):
    """Where the game is played."""

    processes: Size | Literal["auto"] = "auto"
    """Actor processes, each with its share of the copies; more than one only in `async`. `auto`: as
    many as keep the learners busy, as far as cores allow; one for a population, unless its game is
    slow: 0.1 ms or more for a step of an agent."""
    device: str = "cpu"
    """Device of the acting networks."""
    nodes: Annotated[tuple[str, ...], IN_CLUSTER] = ()
    """In a cluster: the nodes that play, each by its name or by a label of its, `name` or
    `name=value`. None named: all."""


class CheckpointConfig(Section):
    """What a run can go on from after it was stopped or killed, and a role after it died."""

    every: PositiveFloat = 60.0
    """Seconds between two checkpoints; a last one is written when the run ends."""
    keep: Count = 3
    """The newest checkpoints that are kept, besides the best."""
    replay: bool | None = None
    """Save experience too. None: in `sequential` and `lockstep`, where a resumed run then equals
    an uninterrupted one bit for bit if its environment can be saved in mid-episode, and not in
    `async`, where a learner collects afresh. Remuda's own games and OpenSpiel's can be saved;
    those of Gymnasium and PettingZoo cannot, nor can any with `env.workers`: they begin new
    episodes, which the run tells."""
    evaluate_episodes: CountOrNone = 20
    """Episodes played on each checkpoint, to find the best. 0: keep no best."""
    write_limit: Annotated[PositiveFloat, CHILDREN] = 10.0
    """Seconds that a role has to write its part; the part before stands in for a later one."""


class SupervisionConfig(Section):
    """What happens to an actor or a learner that dies or hangs."""

    restarts: CountOrNone = 5
    """Restarts of one role within `window` that are granted; one more ends the run."""
    window: Annotated[PositiveFloat, RESTARTED] = 600.0
    """Seconds over which restarts are counted."""
    backoff: Annotated[
        PositiveFloat,
        Only(
            when=lambda config: (
                RESTARTED.reads(config)
                and config.supervision.backoff <= config.supervision.max_backoff
            ),
            needs="schedule async or lockstep, supervision.restarts, and a supervision.max_backoff "
            "that is no less",
        ),
    ] = 0.25
    """Seconds before the first restart; doubled for each further one within the window."""
    max_backoff: Annotated[PositiveFloat, RESTARTED] = 30.0
    """The most seconds before a restart."""
    silence_limit: Annotated[
        PositiveFloat,
        Only(
            when=lambda config: (
                config.schedule != "sequential"
                and None in (config.supervision.actor_silence, config.supervision.learner_silence)
            ),
            needs="schedule async or lockstep, and one of supervision.actor_silence and "
            "supervision.learner_silence None",
        ),
    ] = 30.0
    """Seconds without a sign of life after which a role is taken to hang, and is killed. Longer
    than the longest turn of the game and the longest update. Time does not count in which the
    coordinator was itself stopped, or in which the role computes and gets no processor."""
    actor_silence: PositiveFloat | None = None
    """The same for actors, where games are slower or faster than updates. None: `silence_limit`."""
    learner_silence: PositiveFloat | None = None
    """The same for learners. None: `silence_limit`."""

    def limit_for(self, role: str) -> tuple[float, str]:
        """Seconds that a role of this name may give no sign of life, and the key that says so."""
        own = "actor_silence" if role.startswith("actor") else "learner_silence"
        seconds: float | None = getattr(self, own)
        if seconds is not None:
            return seconds, own
        return self.silence_limit, "silence_limit"


class RunConfig(Section):
    """The run as a whole: its end, its directory, what it writes."""

    turns: Count | None = 1_500_000
    """Turns to play, over all copies together. None: no such end."""
    seconds: PositiveFloat | None = None
    """Seconds to train. None: no such end."""
    directory: Place | None = None
    """The run directory. None: a new one under `runs/`, named by game and time."""
    log_every: PositiveFloat | Literal["auto"] = "auto"
    """Seconds between two lines of metrics. `auto`: a tenth of the time so far, from 0.25 to 5, so
    that a short run has curves too."""
    evaluate_episodes: CountOrNone = 200
    """Episodes played after training."""
    evaluate_sampled: Annotated[
        bool,
        Only(
            when=lambda config: any(
                policy.last_epsilon > 0.0
                for policy in (config.policy, *map(config.policy_of, config.policies))
            ),
            needs="a policy that draws its actions, or exploration.end above 0",
        ),
    ] = False
    """Let policies explore in these, in those of checkpoints and in the picture, as at the end of
    training: where they are to be judged as they learned to play. Else they are greedy."""
    evaluate_seconds: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda config: (
                config.run.evaluate_episodes > 0 or config.checkpoint.evaluate_episodes > 0
            ),
            needs="run.evaluate_episodes or checkpoint.evaluate_episodes",
        ),
    ] = 60.0
    """Seconds that they may take; those that are over by then count. None: as long as it takes."""
    callbacks: tuple[str, ...] = ()
    """Your own, as `module:Class`, each called with nothing: they are told what happens in the run,
    may end it and may change hyperparameters; see docs/callbacks.md."""
    loggers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Where the metrics go besides: `wandb` (Weights & Biases), `mlflow`; each needs its package,
    and is set up by its own environment variables."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of messages that all processes write to their log files (in `logs/`)."""
    live: bool = True
    """Show the live view where the output is a terminal; else plain lines."""
    calibrate: Annotated[
        NonNegativeFloat,
        Only(when=lambda config: config.schedule == "async", needs="schedule async"),
    ] = 0.5
    """Seconds of a trial at the start, to choose processes and threads by what playing and training
    cost here; only where there is a choice, and for runs of more than 10,000 agent-steps. 0: they
    are chosen by the cores and the memory."""
    start_limit: Annotated[PositiveFloat, CHILDREN] = 120.0
    """Seconds that a process has to start, and that it may take to compile a function."""
    stop_limit: Annotated[PositiveFloat, CHILDREN] = 20.0
    """Seconds that a process has to stop before it is killed."""
    fallback: Annotated[bool, ALONE] = False
    """Where the system lets no process be started (no memory, no permission), play and train in
    this one, as with the schedule `sequential`, instead of ending."""
