"""The recorded matches of a run, from the front door."""

import shutil
import sys
from types import ModuleType

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.config import load_config
from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import FREEZE, LOST, MATCH, LedgerFile, record_type
from remuda.runs.run_directory import RunDirectory
from remuda.ui.terminal.live import PlainView

LIVE = -1


def trained(directory, **settings):
    policy = {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}}
    return remuda.load(
        remuda.train(
            "kuhn_poker",
            schedule="sequential",
            policy=policy,
            run={"turns": 300, "evaluate_episodes": 0, "directory": directory},
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
            **settings,
        )
    )


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    snapshots = {"every": 2, "keep": 3}
    population = {"matchmaker": "self_play", "policies": 2, "snapshots": snapshots}
    return trained(tmp_path_factory.mktemp("league") / "run", population=population)


def by_hand(directory, matches, policies=("a", "b")):
    """A run whose ledger holds these: (kind, policies, versions, returns)."""
    directory.mkdir()
    tree = {"game": "kuhn_poker", "population": {"matchmaker": "self_play", "policies": 2}}
    run = RunDirectory.create(load_config(tree | {"run": {"directory": directory / "run"}}))
    run.unlock()
    records = np.zeros(len(matches), record_type(2))
    for i, (kind, policy, version, returns) in enumerate(matches):
        records[i]["kind"], records[i]["number"] = kind, 10 + i
        records[i]["policy"], records[i]["version"], records[i]["returns"] = (
            policy,
            version,
            returns,
        )
        records[i]["oldest"], records[i]["newest"] = [1, 2], [3, 4]
    LedgerFile(run.ledger, policies, 2).append(records)
    return remuda.load(run.path)


def test_each_match_is_a_row_and_nothing_else_is(tmp_path):
    run = by_hand(
        tmp_path / "x",
        [
            (MATCH, [0, 1], [LIVE, LIVE], [1.0, -1.0]),
            (FREEZE, [1, -1], [7, LIVE], [0.0, 0.0]),
            (LOST, [-1, -1], [LIVE, LIVE], [0.0, 0.0]),
            (MATCH, [1, 0], [7, LIVE], [2.0, 0.5]),
        ],
    )
    ledger = run.ledger()
    first, second = run.agents
    assert list(ledger) == [
        *("match", "truncated"),
        *(f"{first}/{name}" for name in ("policy", "return", "oldest_version", "newest_version")),
        *(f"{second}/{name}" for name in ("policy", "return", "oldest_version", "newest_version")),
    ]
    assert ledger.num_rows == 2
    assert ledger["match"].tolist() == [10, 13]
    assert ledger[f"{first}/policy"].tolist() == ["a", "b@7"]
    assert ledger[f"{second}/policy"].tolist() == ["b", "a"]
    assert ledger[f"{first}/return"].tolist() == [1.0, 2.0]
    assert ledger[f"{second}/newest_version"].tolist() == [4, 4]
    assert not ledger["truncated"].any()
    with refuses(KeyError):
        ledger[f"{first}/returns"]


def test_payoffs_are_means_over_meetings_with_the_live_policies_first(tmp_path):
    run = by_hand(
        tmp_path / "x",
        [
            (MATCH, [0, 1], [5, LIVE], [4.0, 1.0]),
            (MATCH, [1, 0], [LIVE, 5], [3.0, 2.0]),
            (MATCH, [0, 1], [LIVE, LIVE], [1.0, 1.0]),
            (MATCH, [0, 0], [LIVE, LIVE], [6.0, 2.0]),
            (FREEZE, [1, -1], [7, LIVE], [0.0, 0.0]),
        ],
    )
    payoffs = run.payoffs()
    assert payoffs.names == ("a", "b", "a@5")
    assert payoffs.counts.tolist() == [[1, 1, 0], [1, 0, 2], [0, 2, 0]]
    nan = np.nan  # who never met
    np.testing.assert_array_equal(payoffs.matrix, [[4, 1, nan], [1, nan, 2], [nan, 3, nan]])
    assert np.isfinite(payoffs.errors[0]).tolist() == (~np.isnan(payoffs.matrix)).tolist()
    low, high = payoffs.intervals(0.95)[:, 0]
    assert low[1, 2] < 2.0 < high[1, 2]
    won = run.payoffs(wins=True)
    np.testing.assert_array_equal(won.matrix, [[0.5, 0.5, nan], [0.5, nan, 0.5], [nan, 0.5, nan]])
    assert run.payoffs(roles=True).counts[2, 1] == 1
    assert run.payoffs(most=2).names == ("a", "b")
    with refuses(remuda.UsageError):
        run.payoffs(most=0)


def test_payoffs_of_a_run_are_those_of_its_ledger(league):
    ledger, payoffs = league.ledger(), league.payoffs()
    assert ledger.num_rows > 100
    one, other = (ledger[f"{agent}/policy"] for agent in league.agents)
    assert {"policy_0", "policy_1"} < {*one, *other} == set(payoffs.names)
    for i, row in enumerate(payoffs.names):
        for j, column in enumerate(payoffs.names):
            earned = [
                *ledger[f"{league.agents[0]}/return"][(one == row) & (other == column)],
                *ledger[f"{league.agents[1]}/return"][(other == row) & (one == column)],
            ]
            assert payoffs.counts[i, j] == (len(earned) // 2 if i == j else len(earned))
            if earned:
                assert payoffs.matrix[i, j] == pytest.approx(np.mean(earned))


def test_a_run_without_matches_is_told(tmp_path, league):
    run = trained(tmp_path / "fixed")
    for ask in (run.ledger, run.payoffs):
        with refuses(RunDirectoryError):
            ask()
    shutil.copytree(league.path, tmp_path / "young")
    young = remuda.load(tmp_path / "young")
    (young.path / "ledger.bin").unlink()
    with refuses(RunDirectoryError):
        young.ledger()
    (young.path / "ledger.bin").write_bytes(b"other")
    with refuses(RunDirectoryError):
        young.payoffs()


def test_a_ledger_that_is_not_of_the_run_is_told(tmp_path):
    run = by_hand(tmp_path / "x", [(MATCH, [0, 4], [LIVE, LIVE], [1.0, 0.0])])
    with refuses(RunDirectoryError):
        run.payoffs()
    run = by_hand(tmp_path / "y", [])
    assert run.ledger().num_rows == 0
    with refuses(remuda.UsageError):
        run.payoffs()
    (run.path / "ledger.bin").unlink()
    LedgerFile(run.path / "ledger.bin", ("a", "b"), 3).append(np.zeros(1, record_type(3)))
    with refuses(RunDirectoryError):
        run.ledger()


def test_frames_and_payoffs_become_those_of_pandas(tmp_path, monkeypatch):
    run = by_hand(tmp_path / "x", [(MATCH, [0, 1], [LIVE, LIVE], [1.0, -1.0])])
    monkeypatch.setitem(sys.modules, "pandas", None)
    for thing in (run.ledger(), run.payoffs()):
        with refuses(remuda.UsageError):
            thing.to_pandas()
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda data, **options: (data, options)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert list(run.ledger().to_pandas()[0]) == list(run.ledger())
    data, options = run.payoffs().to_pandas()
    assert data.shape == (2, 2)
    assert options == {"index": ["a", "b"], "columns": ["a", "b"]}
