"""The analysis of teams and of three seats or more during a run is that of `remuda analyse`."""

import numpy as np
import pytest

import remuda
from ledgers import write_ledger
from remuda.analysis.payoffs.ledger_reader import LedgerReader
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.config import load_config
from remuda.coordinator import recent_payoffs
from remuda.coordinator.analysis_helper import measured
from remuda.coordinator.recent_payoffs import RECENT, RecentPayoffs
from remuda.population.ledger.ledger import BIRTH, LedgerFile
from remuda.runs.run_directory import RunDirectory
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView
from ui.made_runs import a_run

TAG = {"game": "tag", "env": {"options": {"num_agents": 5}}}
RED, BLUE = ("r0", "r1", "r2"), ("b0", "b1", "b2", "b3")
UNEVEN = {
    "matchmaker": "teams",
    "teams": {
        "red": {"agents": ["agent_0", "agent_1"], "policies": RED},
        "blue": {"agents": ["agent_2", "agent_3", "agent_4"], "policies": BLUE},
    },
}
ROBIN = {"matchmaker": "round_robin", "policies": [f"p{i}" for i in range(8)]}
SKILLS = np.array([0.0, 1.0, 3.0, 0.5, -0.5, 2.0, 1.5, -1.0])


def uneven_deals(rng, count):
    for _ in range(count):
        yield [*rng.permutation(3)[:2].tolist(), *(3 + rng.permutation(4)[:3]).tolist()]


def robin_deals(rng, count):
    for _ in range(count):
        yield rng.permutation(8)[:5].tolist()


def rows_of(deals, rng):
    """Matches in which policies earn by their skill, and by whom they meet."""
    rows = []
    for dealt in deals:
        skills = SKILLS[dealt]
        cyclic = np.sin(np.subtract.outer(skills, 2.0 * skills)).sum(1)
        earned = skills + cyclic + rng.normal(0.0, 0.3, len(dealt))
        rows.append(([(policy, -1) for policy in dealt], earned))
    return rows


def made(path, names, population, deals, **more):
    run = a_run(path, names=names, **TAG, population=population, **more)
    rows = rows_of(deals, np.random.default_rng(1))
    write_ledger(path, rows, names, 5).rename(path / "ledger.bin")
    return run


@pytest.fixture
def teams(tmp_path):
    deals = uneven_deals(np.random.default_rng(0), 400)
    return made(tmp_path / "t", (*RED, *BLUE), UNEVEN, deals, policy={"share_rewards": 0.5})


@pytest.fixture
def robin(tmp_path):
    return made(
        tmp_path / "r", ROBIN["policies"], ROBIN, robin_deals(np.random.default_rng(0), 900)
    )


def recent_of(path):
    run = RunDirectory.open(path)
    spec = run.spec()
    seats, names = LedgerSeats.of(spec), LedgerReader.open(run.ledger).policies
    roles = [
        [(i, -1) for i, name in enumerate(names) if group.seats[0] in spec.roster.seats_of(name)]
        for group in seats.groups
    ]
    recent = RecentPayoffs(run.ledger, seats, roles)
    recent.look_at(np.array([(i, -1) for i in range(len(names))]))
    recent.read()
    return recent


def live_of(recent):
    return np.ones(len(recent.game().payoffs.names), np.bool_)


def test_two_teams_of_unlike_sizes_have_the_numbers_of_analyse(teams):
    numbers, earned, mixed = measured(recent := recent_of(teams), live_of(recent))
    (found,) = remuda.analyse(teams, seconds=0, samples=400).analyses
    assert (numbers.analysed, numbers.unmet) == (7, 0.0)
    red, blue = sorted(found.roles, key=lambda each: len(each.ranking.names))
    assert earned == pytest.approx(np.concatenate([red.ranking.scores, blue.ranking.scores]))
    wanted = np.concatenate(found.equilibrium.answer.mixtures)
    wanted = wanted if found.roles[0] is red else np.roll(wanted, 3)
    assert mixed == pytest.approx(wanted, abs=1e-6)
    assert numbers.nash_support == (wanted > 1e-6).sum()
    assert numbers.nash_live == pytest.approx(1.0)
    gains = [role.gain.corrected for role in found.roles]
    assert min(gains) > 0.5
    assert numbers.exploitability == pytest.approx(np.mean(gains), rel=0.02)
    diversity = sum(role.diversity.corrected for role in found.roles)
    assert numbers.diversity == pytest.approx(diversity, rel=0.02)
    assert numbers.transitive_share is None


def test_a_round_robin_has_the_numbers_of_analyse(robin):
    """Policies never meet themselves, so the equilibrium and the diversity were empty."""
    numbers, earned, mixed = measured(recent := recent_of(robin), live_of(recent))
    (found,) = remuda.analyse(robin, seconds=0, samples=400).analyses
    assert numbers.analysed == 8
    assert earned == pytest.approx(found.ranking.scores)
    wanted = found.equilibrium.answer.mixtures[0]
    assert mixed == pytest.approx(wanted, abs=1e-6)
    assert numbers.nash_support == (wanted > 1e-6).sum()
    assert numbers.exploitability == pytest.approx(found.gain.corrected, rel=0.02)
    assert numbers.diversity == pytest.approx(found.diversity.corrected, rel=0.05)
    assert numbers.transitive_share == pytest.approx(found.structure.transitive, rel=0.02)


def test_of_a_role_without_enough_matches_nothing_is_told(tmp_path):
    deals = [*uneven_deals(np.random.default_rng(0), 400)]
    missing = [deal for deal in deals if 6 not in deal]  # b3 never played
    path = made(tmp_path / "some", (*RED, *BLUE), UNEVEN, missing)
    numbers, earned, mixed = measured(recent := recent_of(path), live_of(recent))
    assert numbers.analysed == 6
    assert 0.0 < numbers.unmet < 0.5
    assert np.isnan(earned[6])
    assert np.isnan(mixed[6])
    assert mixed[:6].sum() == pytest.approx(2.0)
    few = made(tmp_path / "few", (*RED, *BLUE), UNEVEN, deals[:2])
    numbers, _, mixed = measured(recent := recent_of(few), live_of(recent))
    assert numbers.analysed == 0
    assert np.isnan(mixed).all()


def test_too_many_line_ups_leave_the_payoffs(robin, monkeypatch):
    monkeypatch.setattr(recent_payoffs, "LARGEST", 100)
    numbers, earned, mixed = measured(recent := recent_of(robin), live_of(recent))
    assert not recent.game().has_line_ups
    assert np.isfinite(earned).all()
    assert np.isnan(mixed).all()
    assert numbers.nash_support is None
    assert numbers.transitive_share is not None


def test_new_matches_of_a_line_up_replace_old_ones(tmp_path):
    path = made(tmp_path / "r", ROBIN["policies"], ROBIN, [[0, 1, 2, 3, 4]] * 5 * RECENT)
    recent = recent_of(path)
    rows = [([(policy, -1) for policy in range(5)], [9.0] * 5)] * RECENT
    write_ledger(tmp_path, rows, ROBIN["policies"], 5)
    append(path, (tmp_path / "ledger"))
    before = recent.game().means[0, 0]
    recent.read()
    assert recent.game().means[0, 0] == pytest.approx((before + 9.0) / 2)
    assert recent.game().counts.tolist() == [2 * RECENT]


def append(run, ledger):
    """Append another ledger's records to that of a run."""
    line, _, data = ledger.read_bytes().partition(b"\n")
    assert line
    with open(run / "ledger.bin", "ab") as file:
        file.write(data)


def test_a_newborn_is_in_no_line_up_of_the_policy_before_it(robin):
    recent = recent_of(robin)
    assert len(recent.game().profiles) == 56
    birth = np.zeros(1, LedgerReader.open(robin / "ledger.bin").kind)
    birth["kind"], birth["policy"], birth["version"] = BIRTH, 3, -1
    LedgerFile(robin / "ledger.bin", ROBIN["policies"], 5).append(birth)
    recent.read()
    game = recent.game()
    assert len(game.profiles) == 21  # those of seven policies
    assert not (game.profiles[:, 3] > 0).any()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("population", [UNEVEN, ROBIN])
def test_the_last_row_of_metrics_has_the_numbers_of_analyse(population, tmp_path):
    directory = tmp_path / "run"
    episodes, length, copies = 60, 20, 16
    options = {"num_agents": 5, "run": str(directory), "patient": episodes, "max_turns": length}
    result = train(
        load_config(
            {
                "game": "patient_tag:PatientTag",
                "env": {"num_envs": copies, "options": options},
                "policy": {
                    "algorithm": "ppo",
                    "network": {"hidden": (8,)},
                    "ppo": {"rollout_length": 8},
                },
                "population": population,
                "analysis": {"every": 0.5},
                "run": {
                    "turns": copies * (episodes * length + length - 4),
                    "log_every": 0.25,
                    "evaluate_episodes": 0,
                    "directory": directory,
                },
                "checkpoint": {"evaluate_episodes": 0},
            }
        ),
        PlainView(),
    )
    last = result.record
    assert last.matches == episodes * copies
    (found,) = remuda.analyse(directory, seconds=0, samples=400).analyses
    several = population is UNEVEN
    scores = {name: last.members[name].payoff for name in found.scores}
    assert scores == pytest.approx(found.scores)
    numbers = last.population
    assert numbers["analysed"] == len(scores)
    if found.equilibrium is None:
        assert numbers["nash_support"] is None
    else:
        wanted = np.concatenate(found.equilibrium.answer.mixtures)
        mixed = [last.members[name].nash for name in found.scores]
        assert mixed == pytest.approx(wanted.tolist(), abs=1e-6)
        assert numbers["nash_support"] == (wanted > 1e-6).sum()
    gains = [role.gain for role in found.roles] if several else [found.gain]
    error = np.mean([gain.interval[1] - gain.interval[0] for gain in gains])
    gain = np.mean([gain.corrected for gain in gains])
    assert numbers["exploitability"] == pytest.approx(gain, abs=0.3 * error)
