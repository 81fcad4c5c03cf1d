"""The configuration of everything but policies: environment, processes, checkpoints, run."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from remuda.config.plain import Options
from remuda.config.sections import (
    Count,
    CountOrNone,
    Only,
    PathSetting,
    Section,
    Size,
    SizeOrNone,
    at_most,
)

IN_CLUSTER = Only(needs="cluster.address or cluster.local")
SEVERAL_MACHINES = Only(needs="cluster.address")
SIDE_BY_SIDE = Only(needs="cluster.address or cluster.local, and schedule async")
HIGHEST_PORT = 65535
MOST_LOCAL = 64  # nodes on one machine: each has at least three processes of Ray and one of Remuda
CHILDREN = Only(needs="schedule async or lockstep")
RESTARTED = Only(needs="schedule async or lockstep, and supervision.restarts")
ALONE = Only(
    when=lambda config: config.schedule != "sequential" and not config.cluster.used,
    needs="schedule async or lockstep, and one node",
)


class EnvConfig(Section):
    """The environment, and its copies."""

    num_envs: Size = 1
    """Independent copies of the environment that the actor steps together. For an environment that
    is not one of Remuda's own games, the default is 8."""
    observe_together: bool = False
    """Let all agents observe at the start of a turn and act in one batched pass, which is much
    faster with few copies. Actions still take effect in the environment's order."""
    agent_id: bool = False
    """Append the agent's number to each observation, one-hot, so that agents that share a policy
    can act differently. `Policy.act` and ONNX files then need it too."""
    scripted: dict[str, str] = {}
    """Agents played by a scripted policy: `random`, one that `remuda games GAME` lists, or your own
    as `module:callable`. In a population the matchmaker assigns the other seats."""
    workers: Size = 1
    """Processes that step an actor's copies, for slow Python environments; 1: the actor steps them
    itself. With more, a resumed run starts new episodes."""
    check: bool = True
    """Check every value from the environment for presence, shape and finiteness; an error states
    the agent, the copy and the turn. It costs 0.4 to 3.4% of a turn."""
    options: Options = {}
    """Parameters of the environment; `remuda games` lists them."""
    wrappers: tuple[str, ...] = ()
    """Wrappers around each copy of an environment of Gymnasium, PettingZoo or similar, the first
    one innermost: `module:Name`, with arguments where needed, as in
    `gymnasium.wrappers:TimeLimit(max_episode_steps=100)` or `supersuit:frame_stack_v1(4)`."""
    episode_metrics: dict[str, Literal["last", "sum", "mean", "min", "max"]] = {}
    """Numbers in `info` of environments of Gymnasium, PettingZoo or similar that become episode
    metrics, with their aggregation over an episode. `speed` is the mean over agents that report it,
    `agent_0/speed` the value of one agent, and `*/speed` one metric for each agent."""

    @property
    def made_with(self) -> dict[str, Any]:
        """Arguments of `make_env`: options, and changes to each copy."""
        around = {
            "wrappers": self.wrappers,
            "episode_metrics": self.episode_metrics,
            "observe_together": self.observe_together,
            "agent_id": self.agent_id,
        }
        named = {f"env.{name}": value for name, value in around.items() if value}
        return dict(self.options) | named  # no option of a game has such a name


MOST_THREADS = at_most(1024, "since more threads do not speed up updates")
"""Maximum threads of a learner process; libraries fail to start many more and only log it."""


class LearnersConfig(Section):
    """Learner processes and devices."""

    processes: Annotated[Size | Literal["auto"], CHILDREN] = "auto"
    """Learner processes. `auto`: as few as keep up with the actors, within cores and memory;
    policies share a process in groups."""
    threads: Annotated[PositiveInt, MOST_THREADS] | Literal["auto"] = "auto"
    """Threads of each learner process. `auto`: 1, or more if cores are idle and updates are much
    faster with them."""
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
    """Devices assigned to the policies in turn, such as `cuda:0 cuda:1`. Empty: all GPUs, or else
    the CPU."""
    nice: Annotated[Annotated[int, Field(ge=0, le=19)] | Literal["auto"], CHILDREN] = "auto"
    """Niceness of learner processes, which gives actors precedence. `auto`: 0 if every process has
    a core, else 3, which gives a learner half the CPU time of an actor. With a larger value, other
    programs on a busy machine would starve learners."""


class ActorConfig(Section):
    """Actor processes."""

    processes: Size | Literal["auto"] = "auto"
    """Actor processes, each with a share of the copies; more than one only in `async`. `auto`:
    enough to keep the learners busy, limited by cores; one for a population, unless its environment
    needs 0.1 ms or more per agent step."""
    device: str = "cpu"
    """Device of the acting networks."""
    nodes: Annotated[tuple[str, ...], IN_CLUSTER] = ()
    """In a cluster: the nodes that run actors, each by its name or a label (`name` or
    `name=value`). Empty: all."""


class CheckpointConfig(Section):
    """Checkpoints, from which runs resume and crashed processes restart."""

    every: PositiveFloat = 60.0
    """Seconds between two checkpoints; a last one is written at the end."""
    keep: Count = 3
    """Number of newest checkpoints to keep, in addition to the best."""
    replay: bool | None = None
    """Save experience too. None: in `sequential` and `lockstep`, not in `async`, where actors
    collect new experience after a resume. With the first two schedules, a resumed run then equals
    an uninterrupted one bit for bit if its environment can be saved in mid-episode. Remuda's own
    environments and OpenSpiel's can. Those of Gymnasium and PettingZoo, and any with `env.workers`,
    cannot: they start new episodes, which the run reports."""
    evaluate_episodes: CountOrNone = 20
    """Episodes played with each checkpoint's policies to find the best. 0: keep no best."""
    write_limit: Annotated[PositiveFloat, CHILDREN] = 10.0
    """Seconds that a process has to write its part of a checkpoint; otherwise its previous part is
    used."""


class SupervisionConfig(Section):
    """Supervision of actors and learners that crash or hang."""

    restarts: CountOrNone = 5
    """Restarts of one process allowed within `window`; one more ends the run."""
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
    """Maximum seconds before a restart."""
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
    """Seconds without a heartbeat after which a process counts as hanging and is killed. It must
    exceed the longest turn and the longest update. Time in which the coordinator was stopped, or
    the process waited for a processor, does not count."""
    actor_silence: PositiveFloat | None = None
    """The silence limit of actors, if turns and updates differ in speed. None: `silence_limit`."""
    learner_silence: PositiveFloat | None = None
    """The silence limit of learners. None: `silence_limit`."""

    def limit_for(self, role: str) -> tuple[float, str]:
        """Return a process's silence limit in seconds, and the key of that limit."""
        own = "actor_silence" if role.startswith("actor") else "learner_silence"
        seconds: float | None = getattr(self, own)
        if seconds is not None:
            return seconds, own
        return self.silence_limit, "silence_limit"


class RunConfig(Section):
    """The run as a whole: its end, directory and output."""

    turns: Count | None = 1_500_000
    """Turns to play, over all copies together. None: no limit. For an environment that is not one
    of Remuda's own games, the default is 1,000,000."""
    seconds: PositiveFloat | None = None
    """Seconds to train. None: no limit."""
    directory: PathSetting | None = None
    """The run directory. None: a new one under `runs/`, named after environment and time."""
    log_every: PositiveFloat | Literal["auto"] = "auto"
    """Seconds between two lines of metrics. `auto`: a tenth of the time so far, from 0.25 to 5, so
    that short runs have curves too."""
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
    """Let policies explore as at the end of training, in evaluations (also of checkpoints) and in
    the recording. False: they act greedily."""
    evaluate_seconds: Annotated[
        PositiveFloat | None, Only(needs="run.evaluate_episodes or checkpoint.evaluate_episodes")
    ] = 60.0
    """Maximum seconds of evaluations; episodes finished by then count. None: no limit."""
    callbacks: tuple[str, ...] = ()
    """Your own callbacks, as `module:Class`, each called without arguments. They receive the events
    of a run, may end it and may change hyperparameters and environment options; see
    docs/callbacks.md."""
    loggers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Additional destinations of metrics: `wandb` (Weights & Biases), `mlflow`. Each needs its
    package and is configured by its environment variables."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of messages in the log files of all processes (in `logs/`)."""
    live: bool = True
    """Show the live view if the output is a terminal; otherwise plain lines."""
    calibrate: Annotated[NonNegativeFloat, Only(needs="schedule async")] = 0.5
    """Seconds of a trial at the start that measures playing and training to choose processes and
    threads. It takes place if there is a choice and the run has more than 10,000 agent-steps. 0:
    choose by cores and memory."""
    start_limit: Annotated[PositiveFloat, CHILDREN] = 120.0
    """Seconds that a process has to start, and to compile a function."""
    stop_limit: Annotated[PositiveFloat, CHILDREN] = 20.0
    """Seconds that a process has to stop before it is killed."""
    fallback: Annotated[bool, ALONE] = False
    """If the system cannot start processes (no memory, no permission), play and train in the
    current process, as with the schedule `sequential`, instead of ending."""


def _address(text: str) -> str:
    if text.startswith("ray://"):
        raise ValueError(
            f"{text!r} is for Ray's client, which Remuda does not use: run Remuda on a node of "
            "the cluster, with the address auto"
        )
    _, separator, port = text.rpartition(":")
    if text in ("", "auto") or (separator and port.isdigit() and int(port) <= HIGHEST_PORT):
        return text
    raise ValueError(
        f"{text!r} is no address; give auto, or host:port of the head as `ray start --head` "
        "prints it, such as 10.0.0.1:6379"
    )


def _ports(text: str) -> str:
    if not text:
        return text
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no range of ports; give the first and the last: 20000-20099")
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first <= last <= HIGHEST_PORT:
        raise ValueError(
            f"{text!r} is no range of ports from 1024 to {HIGHEST_PORT}, the lower one first; "
            "give the first and the last: 20000-20099"
        )
    return text


class ClusterConfig(Section):
    """Several machines, the nodes of a Ray cluster, for one run; see docs/cluster.md."""

    address: Annotated[str, AfterValidator(_address)] = ""
    """The Ray cluster to run on: `auto`, the one that this machine belongs to, or `host:port` of
    its head. Empty: the run stays on this machine."""
    local: Annotated[int, Field(ge=0, le=MOST_LOCAL)] = 0
    """Start this many nodes on this machine, including the head, to try out a cluster; they end
    with the run. 0: none."""
    nodes: Annotated[SizeOrNone, SEVERAL_MACHINES] = 0
    """Number of nodes, including this machine, that the run waits for at its start and uses. 0: all
    nodes, including those that join later."""
    ports: Annotated[str, AfterValidator(_ports), IN_CLUSTER] = ""
    """Ports on which nodes receive weights and experience: the first and the last, such as
    `20000-20099`, which a firewall must let through. Empty: any free ports."""
    start_limit: Annotated[PositiveFloat, IN_CLUSTER] = 60.0
    """Seconds that nodes have to join and report ready."""
    silence: Annotated[PositiveFloat, IN_CLUSTER] = 10.0
    """Seconds without an answer after which a node counts as lost: its processes are killed if
    they can be reached, and its work restarts on other nodes."""
    shared_directory: Annotated[bool, SEVERAL_MACHINES] = False
    """The run directory has the same path on all nodes, as on a network drive, and nodes write
    their parts of checkpoints there. False: parts are sent to this machine."""
    weights_every: Annotated[NonNegativeFloat, SIDE_BY_SIDE] = 0.0
    """Minimum seconds between two versions of a policy sent to another node. 0: send the newest
    version as soon as the previous one has arrived."""

    def model_post_init(self, _: Any) -> None:
        if self.address and self.local:
            raise ValueError(
                f"address is {self.address!r} and local is {self.local}: a run uses either the "
                "nodes of an existing cluster or nodes on this machine; set one of them"
            )

    @property
    def used(self) -> bool:
        """Return whether the run has, or may have, several nodes."""
        return bool(self.address or self.local)
