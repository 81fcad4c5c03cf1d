"""A clone earns what its model earned."""

import pytest

import remuda
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Twenty episodes of a policy that balances CartPole's pole."""
    folder = tmp_path_factory.mktemp("imitated")
    result = remuda.train(
        "gymnasium:CartPole-v1",
        schedule="sequential",
        env={"num_envs": 8},
        policy={"algorithm": "ppo"},
        run={"turns": 60_000, "directory": folder / "run", "evaluate_episodes": 20},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    assert result.evaluation.mean(0) >= 475
    return remuda.load(result).record(20, to=folder / "data.npz", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_a_clone_balances_the_pole(algorithm, data, tmp_path):
    clone = remuda.imitate(data, policy={"algorithm": algorithm}, directory=tmp_path / "clone")
    found = clone.evaluate(20, seed=2).mean(0)
    print(f"{algorithm}: {found}")
    assert found >= 475
