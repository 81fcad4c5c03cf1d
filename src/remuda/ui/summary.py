"""What came of a run: read from its directory, put into words, and printed at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.config import load_saved_config, read_config
from remuda.coordinator.metrics import MemberRecord, Record
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING = "–"
"""Stands where there is no number."""

END = 0.1
"""The share of the run's turns, its last, over which the training return is averaged."""


@dataclass(frozen=True)
class PolicySummary:
    """What came of one policy. None: there was nothing to measure."""

    name: str
    greedy_return: float | None = None
    """Mean over the episodes of the evaluation."""
    standard_error: float | None = None
    """Of that mean."""
    training_return: float | None = None
    """Mean over the episodes of the last tenth of training, exploration included."""
    episodes: int = 0
    updates: int = 0
    version: int = 0
    staleness: float | None = None
    """Mean over all updates."""
    replay_ratio: float | None = None
    member: MemberRecord | None = None
    """Its record in a population whose seats are dealt."""

    @property
    def rating(self) -> str:
        """What is believed of its skill, and how sure that is."""
        found = self.member
        return NOTHING if found is None else f"{found.rating:.1f} ± {found.uncertainty:.1f}"

    @property
    def greedy(self) -> str:
        """The greedy return in words."""
        return _with_error(self.greedy_return, self.standard_error)


@dataclass(frozen=True)
class FactSummary:
    """One of the facts that the game tells of its episodes. None: there was nothing to measure."""

    name: str
    greedy: float | None
    """Mean over the episodes of the evaluation."""
    standard_error: float | None
    """Of that mean."""
    training: float | None
    """Mean over the last tenth of training, exploration included."""

    @property
    def words(self) -> str:
        """The name as it is read."""
        return self.name.replace("_", " ")

    @property
    def greedy_words(self) -> str:
        """The greedy mean in words."""
        return _with_error(self.greedy, self.standard_error)


@dataclass(frozen=True)
class RunSummary:
    """What came of a run."""

    files: RunDirectory
    config: dict[str, Any]
    """The content of `config.yaml`."""
    facts: dict[str, Any]
    """The content of `summary.json`."""
    records: tuple[Record, ...]
    """The content of `metrics.jsonl`."""
    policies: tuple[PolicySummary, ...]

    told: tuple[FactSummary, ...] = ()
    """What the game tells of its episodes."""
    damaged: int = 0
    """Lines of `metrics.jsonl` that could not be read."""

    @property
    def earlier(self) -> float:
        """Seconds of the run before its last session; 0: it was not resumed."""
        return float(self.facts.get("earlier", 0.0))

    @property
    def episodes_evaluated(self) -> int:
        """Greedy episodes played after training; 0: none."""
        return int((self.facts.get("evaluation") or {}).get("episodes", 0))


def read_run(path: Path) -> RunSummary:
    """Read what a run left behind.

    Raises:
        RunDirectoryError: the configuration, the metrics or the summary is missing or damaged.
    """
    files = RunDirectory.open(path)
    facts = files.read_summary()
    damaged: list[int] = []
    records = files.read_metrics(damaged)
    return RunSummary(
        files,
        read_config(files.config),
        facts,
        records,
        tuple(_policies(facts, records)),
        tuple(_told(facts, records)),
        len(damaged),
    )


def _told(facts: dict[str, Any], records: Sequence[Record]) -> Iterator[FactSummary]:
    evaluated = (facts.get("evaluation") or {}).get("facts", {})
    trained = records[-1].facts if records else {}
    for name in trained or evaluated:
        greedy = evaluated.get(name, {})
        begin = (1 - END) * records[-1].turns if records else 0
        at_end = [r.facts.get(name) for r in records if r.turns >= begin]
        yield FactSummary(
            name,
            _finite(greedy.get("mean")),
            _finite(greedy.get("standard_error")),
            weighted_mean([(value, 1) for value in at_end if value is not None]),
        )


def _policies(facts: dict[str, Any], records: Sequence[Record]) -> Iterator[PolicySummary]:
    evaluation = facts.get("evaluation") or {}
    evaluated = evaluation.get("policies") or evaluation.get("agents", {})
    trained = records[-1].playing if records else {}
    members = records[-1].members if records else {}
    for name in trained or evaluated:
        greedy = evaluated.get(name, {})
        mean, error = _finite(greedy.get("mean")), _finite(greedy.get("standard_error"))
        if name not in trained:
            yield PolicySummary(name, mean, error)
            continue
        last = trained[name]
        begin = (1 - END) * records[-1].turns
        at_end = [(x, n) for turns, x, n in returns(records, name) if turns >= begin]
        yield PolicySummary(
            name,
            mean,
            error,
            weighted_mean(at_end),
            last.episodes,
            last.updates,
            last.version,
            weighted_mean(_staleness(records, name)),
            last.replay_ratio,
            members.get(name),
        )


def returns(records: Sequence[Record], policy: str) -> Iterator[tuple[int, float, int]]:
    """Turns, mean return and number of episodes of each interval in which an episode ended."""
    before = 0
    for record in records:
        numbers = record.policies.get(policy)
        if numbers is None:
            continue
        if numbers.mean_return is not None:
            yield record.turns, numbers.mean_return, max(numbers.episodes - before, 1)
        before = numbers.episodes


def _staleness(records: Sequence[Record], policy: str) -> Iterator[tuple[float, int]]:
    before = 0
    for record in records:
        numbers = record.policies.get(policy)
        if numbers is None:
            continue
        if numbers.staleness is not None:
            yield numbers.staleness, max(numbers.updates - before, 1)
        before = numbers.updates


def weighted_mean(
    pairs: Iterator[tuple[float, float]] | Sequence[tuple[float, float]],
) -> float | None:
    """Mean of the first of each pair, weighted by the second; None: there is none."""
    pairs = list(pairs)
    if not pairs:
        return None
    return sum(x * weight for x, weight in pairs) / sum(weight for _, weight in pairs)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_error(mean: float | None, error: float | None) -> str:
    if mean is None:
        return NOTHING
    return number(mean) if error is None else f"{number(mean)} ± {number(error)}"


def number(value: float | None) -> str:
    """A measured number, with as many digits as are worth reading."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size == 0 or size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 else f"{value:.0e}"


def rate(value: float | None) -> str:
    """A rate to three digits: more of them would only flicker."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) < 100:
        return f"{value:.1f}"
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return f"{round(value / step) * step:,.0f}"


def percent(share: float | None) -> str:
    """A share of one."""
    return NOTHING if share is None or not math.isfinite(share) else f"{share:.0%}"


def clock(seconds: float | None) -> str:
    """A duration as on a clock: `0:07`, `12:30`, `1:02:03`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def restarted(restarts: Mapping[str, int]) -> str:
    """How often roles were restarted, in words."""
    if not restarts:
        return "nothing had to be restarted"
    total = sum(restarts.values())
    roles = ", ".join(f"{role} {count}" for role, count in restarts.items())
    return f"{total} {'restart' if total == 1 else 'restarts'}: {roles}"


def waited(count: int) -> str:
    """How often the actor waited for a learner, in words."""
    return {0: "never waited", 1: "waited once"}.get(count, f"waited {count:,} times")


Column = tuple[str, Callable[[PolicySummary], str]]

COLUMNS: tuple[Column, ...] = (
    ("greedy return", lambda p: p.greedy),
    ("in training", lambda p: number(p.training_return)),
    ("episodes", lambda p: f"{p.episodes:,}"),
    ("updates", lambda p: f"{p.updates:,}"),
    ("version", lambda p: f"{p.version:,}"),
    ("staleness", lambda p: number(p.staleness)),
    ("replay ratio", lambda p: number(p.replay_ratio)),
)
"""What is told of each policy beside its name: the heading, and the words."""

STANDING: tuple[Column, ...] = (
    ("rating", lambda p: p.rating),
    ("wins", lambda p: percent(p.member.win_rate if p.member else None)),
    ("games", lambda p: f"{p.member.games:,}" if p.member else NOTHING),
)
"""Likewise, of a population."""


def columns_of(summary: RunSummary) -> tuple[Column, ...]:
    """What there is to tell of each policy."""
    if not any(policy.member for policy in summary.policies):
        return COLUMNS
    return (*COLUMNS[:2], *STANDING, *(column for column in COLUMNS[2:] if column[0] != "episodes"))


NARROW = 96
"""Columns of a terminal below which the policies' versions and episodes are left out."""


def print_summary(run: Path, console: Console | None = None) -> None:
    """Print what came of a run, and where its files are.

    Raises:
        RunDirectoryError: the run's files are missing or damaged.
    """
    print_results(run, console)
    print_files(run, console)


def print_files(run: Path, console: Console | None = None) -> None:
    """Print where what a run left behind is."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    for name, path in _files(RunDirectory(run)):
        console.print(Text.assemble((f"{name:<9}", "dim"), str(path)), soft_wrap=True)


def print_results(run: Path, console: Console | None = None) -> None:
    """Print what came of a run: its facts, a table of its policies, and what to know of them.

    Raises:
        RunDirectoryError: the run's files are missing or damaged.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    summary = read_run(run)
    facts = summary.facts
    end = f"  {facts['schedule']}, seed {facts['seed']}: {facts['ended']}"
    console.print()
    console.print(Text.assemble((facts["game"], "bold"), end))
    console.print(
        Text(
            f"{facts['turns']:,} turns and {facts['agent_steps']:,} agent-steps "
            f"in {clock(facts['seconds'])}\n{rate(facts['agent_steps_per_second'])} agent-steps/s; "
            f"the actor {waited(facts['waits'])}; {restarted(facts.get('restarts', {}))}",
            "dim",
        )
    )
    console.print()
    console.print(_table(summary, console.width < NARROW))
    console.print()
    if summary.records and summary.records[-1].members:
        console.print(Text(population_words(summary.records[-1]), "dim"))
        console.print()
    if summary.told:
        console.print(_facts_table(summary))
        console.print()
    for words in remarks(summary):
        console.print(Text(words, "yellow"))
    if remarks(summary):
        console.print()


def remarks(summary: RunSummary) -> list[str]:
    """What a reader of the table must know besides."""
    facts, found = summary.facts, []
    for name in facts.get("halted", ()):
        found.append(
            f"{name} stopped learning: too many of its updates were not finite "
            "(policy.max_nonfinite in a row). It played on with its last good weights; try a lower "
            "policy.learning_rate or policy.reward_scale"
        )
    found += facts.get("notes", ())
    found += _missed_ratios(summary)
    if summary.damaged:
        lines = "1 line" if summary.damaged == 1 else f"{summary.damaged} lines"
        found.append(f"{lines} of {summary.files.metrics} could not be read, and are left out")
    return found


MISSED = 0.5
"""The share of the asked replay ratio below which it is told that it was missed."""


def _missed_ratios(summary: RunSummary) -> Iterator[str]:
    """Say of each ratio that was asked for which policies did not come near it."""
    try:
        config = load_saved_config(summary.config)
    except ConfigError:  # of another version
        return
    missed: dict[float, list[PolicySummary]] = {}
    for policy in summary.policies:
        asked = config.policy_of(policy.name)
        ratio = asked.experience.replay_ratio
        if ratio is None or asked.rollout_length or policy.replay_ratio is None:
            continue
        if policy.updates >= ENOUGH and policy.replay_ratio < MISSED * ratio:
            missed.setdefault(ratio, []).append(policy)
    for ratio, policies in missed.items():
        names = ", ".join(policy.name for policy in policies[:4])
        if len(policies) > 4:
            names += f" and {len(policies) - 4} more"
        reached = max(policy.replay_ratio or 0.0 for policy in policies)
        starts = {p.name: config.policy_of(p.name).experience.learning_starts for p in policies}
        newest = _ratio_since_resume(summary, starts, config.saves_replay)
        if newest is None or newest < MISSED * ratio:
            why = _why_missed(summary)
        else:
            why = f"it was so before the run was resumed, and is {number(newest)} since then"
        yield (
            f"{names} trained on {number(reached)} samples a step at most, and "
            f"policy.experience.replay_ratio asks for {number(ratio)}: {why}"
        )


def _ratio_since_resume(
    summary: RunSummary, starts: Mapping[str, int], saves_replay: bool
) -> float | None:
    """The least replay ratio of some policies in the last session; None: there was one only.

    Args:
        summary: of the run.
        starts: by policy, steps that are collected before the first update.
        saves_replay: whether a session goes on with the steps of the one before.
    """
    earlier = [record for record in summary.records if record.seconds <= summary.earlier]
    if not earlier or len(earlier) == len(summary.records):
        return None
    ratios = []
    for name, begin in starts.items():
        before, now = earlier[-1].policies.get(name), summary.records[-1].policies[name]
        if before is None or now.replay_ratio is None:
            continue
        samples = now.replay_ratio * (now.steps - begin)
        steps = now.steps - before.steps
        if before.replay_ratio is None:
            steps = now.steps - begin
        else:
            samples -= before.replay_ratio * (before.steps - begin)
            steps -= 0 if saves_replay else begin  # they are waited for anew
        ratios.append(samples / steps if steps > 0 else 0.0)
    return min(ratios, default=None)


ENTIRE = 0.75
"""The share of its time from which on a learner is said to have had a processor, or to be busy."""


def _why_missed(summary: RunSummary) -> str:
    """Why learners fell behind: by what they were seen to have, and by what they did with it.

    Both are of the last session only.
    """
    waiting = "policy.experience.on_full wait, by which the game waits for them,"
    had = [
        share
        for role, share in summary.facts.get("processors", {}).items()
        if role.startswith("learner")
    ]
    busy = busy_share(summary.records, summary.earlier)
    if not had or not busy:
        return (
            "the learners did not keep up with the game. Fewer or smaller policies, learners.nice "
            f"0, or {waiting} help"
        )
    busy, share = min(busy / len(had), 1.0), sum(had) / len(had)
    if share < ENTIRE * busy:
        return (
            f"the learners trained for {busy:.0%} of the time, and had a processor for "
            f"{share / busy:.0%} of that: the rest went to the game and to other programs. Fewer "
            "or smaller policies, learners.nice 0, a machine that does less besides, or "
            f"{waiting} help"
        )
    if busy > ENTIRE:
        return (
            f"the learners trained for {busy:.0%} of the time and had a processor: their updates "
            "take longer than the game leaves them. Smaller networks or batches, more "
            f"learners.processes where there are cores, or {waiting} help"
        )
    return (
        f"the learners trained for {busy:.0%} of the time only: they began late, were restarted, "
        "or waited for something; their logs tell"
    )


def busy_share(records: Sequence[Record], since: float = 0.0) -> float | None:
    """Learners that trained on average from so many seconds on, all of their policies together."""
    seconds = [0.0, *(record.seconds for record in records)]
    shares = []
    for record, (start, end) in zip(records, pairwise(seconds), strict=True):
        busy = [policy.busy for policy in record.policies.values() if policy.busy is not None]
        passed = end - max(start, since)
        if busy and passed > 0.0:  # where a learner was restarted, as much as of the others
            shares.append((sum(busy) * len(record.policies) / len(busy), passed))
    return weighted_mean(shares)


ENOUGH = 20
"""Updates from which on a replay ratio tells something."""


def population_words(record: Record) -> str:
    """How large a population is, and how much it played."""
    frozen, live = record.num_frozen, record.num_live
    copies = f", and {frozen} frozen copies of what they were" if frozen else ""
    policies = "1 policy" if live == 1 else f"{live} policies"
    return f"{record.matches:,} matches of {policies}{copies}"


def _table(summary: RunSummary, narrow: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    left_out = {"version", "episodes"} if narrow else set()
    if narrow and any(policy.member for policy in summary.policies):
        left_out |= {"games", "staleness", "updates"}
    columns = [column for column in columns_of(summary) if column[0] not in left_out]
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("policy", style="bold", overflow="ellipsis", max_width=24)
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in summary.policies:
        table.add_row(Text(policy.name), *(tell(policy) for _, tell in columns))
    return table


def _facts_table(summary: RunSummary) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("of an episode", style="bold")
    for heading in ("greedy", "in training"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fact in summary.told:
        table.add_row(fact.words, fact.greedy_words, number(fact.training))
    return table


def _files(files: RunDirectory) -> Iterator[tuple[str, Path]]:
    paths = {
        "report": files.path / "report.html",
        "picture": files.recording,
        "weights": files.weights,
    }
    for name, path in paths.items():
        if path.exists():
            yield name, path
