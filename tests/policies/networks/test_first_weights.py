"""Constants that are not finite stop no policy; first weights that are not finite begin none."""

import numpy as np
import pytest

import remuda
from policies.networks.test_own_networks import LEARNS, SMALL
from refusals import refuses
from remuda.errors import ContractError
from remuda.ui.terminal.live import PlainView

OWN = "policies.masked_networks"


def train(directory, algorithm, module, **policy):
    return remuda.train(
        "support:Tape",
        config=SMALL,
        schedule="sequential",
        policy=LEARNS[algorithm] | {"network": {"module": f"{OWN}:{module}"}} | policy,
        run={"directory": directory},
        view=PlainView(),
    )


@pytest.mark.slow_cases(
    "dqn-snapshot", "iqn-double_buffer", "iqn-snapshot", "ppo-double_buffer", "ppo-snapshot"
)
@pytest.mark.parametrize("mode", ["snapshot", "double_buffer"])
@pytest.mark.parametrize("algorithm", LEARNS)
def test_a_mask_of_minus_infinity_stops_no_learning(algorithm, mode, tmp_path):
    """Red before: each update was undone, and the policy stopped learning."""
    result = train(tmp_path / "run", algorithm, "Masked", publish={"mode": mode})
    policy = remuda.load(result)["agent_0"]
    assert policy.learner_step > 0
    mask = policy.weights()["hidden_module.mask"]
    assert np.isneginf(mask[np.triu_indices(8, 1)]).all()


@pytest.mark.parametrize("algorithm", LEARNS)
def test_first_weights_that_are_not_finite_are_refused(algorithm, tmp_path):
    """Red before: they were published as version 1."""
    with refuses(ContractError, "layer.weight"):
        train(tmp_path / "run", algorithm, "Broken")
