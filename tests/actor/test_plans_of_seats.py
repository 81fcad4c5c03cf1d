"""Plans of passes through networks, where seats are dealt."""

import numpy as np
import pytest

from assembled import assemble
from remuda.actor.batch_plan import make_plan
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout


def test_plans_hold_every_stream_once_and_passes_cover_them():
    random = np.random.default_rng(0)
    for num_rows in (1, 3, 40, 300):
        for _ in range(20):
            skew = random.random(num_rows) ** 8 + 1e-9
            rows = random.choice(num_rows, 200, p=skew / skew.sum())
            rows[random.random(200) < 0.1] = -1  # of another stack
            plan = make_plan(rows, np.arange(1000, 1200), num_rows)
            for k in range(num_rows):
                mine = plan.rows.streams[plan.rows.begins[k] : plan.rows.begins[k + 1]]
                assert mine.tolist() == (1000 + np.flatnonzero(rows == k)).tolist()
            covered = [k for first, end, _ in plan.passes for k in range(first, end)]
            assert covered == sorted(set(covered))
            assert set(rows[rows >= 0]) <= set(covered)
            for first, end, width in plan.passes:
                assert np.diff(plan.rows.begins)[first:end].max() <= width


def test_one_full_row_does_not_widen_the_others():
    rows = np.concatenate([np.zeros(512, np.int64), 1 + np.arange(120) % 40])
    plan = make_plan(rows, np.arange(632), 41)
    assert plan.passes == ((0, 1, 512), (1, 41, 4))


def all_in_one_memory(actor, stack):
    """Whether the passes of a turn are all given their inputs in the stack's own array."""
    found, room = [], stack.padded_pass

    def noted(*which):
        inputs, forward = room(*which)
        found.append(np.shares_memory(inputs, stack.inputs))
        return inputs, forward

    stack.padded_pass = noted
    actor.work()
    return len(found) > 0 and all(found)


@pytest.mark.slow_cases("0")
@pytest.mark.parametrize("recurrent", [0, 8])
def test_what_networks_act_on_grows_with_the_streams_not_with_policies_times_streams(recurrent):
    """Room for all streams of each of 3,328 policies would be gigabytes."""
    sizes = {}
    for policies in (8, 64):
        config = load_config(
            {
                "game": "treasure_hunt",
                "env": {"num_envs": 2 * policies, "options": {"num_agents": 4}},
                "policy": {
                    "algorithm": "ppo",
                    "network": {"hidden": [8], "recurrent": recurrent},
                    "ppo": {"rollout_length": 8},
                },
                "population": {
                    "matchmaker": "random",
                    "policies": policies,
                    "snapshots": {"every": 1, "keep": 4},
                },
                "learners": {"processes": 1},
                "actor": {"processes": 1},
            }
        )
        specs = policy_specs(config, make_env(config.game, 1, **config.env.options).agents)
        agents = make_env(config.game, 1, **config.env.options).agents
        layout = make_layout(config, len(specs))
        actor = assemble(config, specs, layout, agents=agents).roles()[0].build()
        for _ in range(3):
            actor.work()
        (policy_group,) = actor.seats.policy_groups
        stack = policy_group.stack
        sizes[policies] = (
            stack.inputs.nbytes + stack.recurrent_states.nbytes + stack.previous_states.nbytes
        )
        if recurrent:
            assert all_in_one_memory(actor, stack)
        else:
            sizes[policies] += stack.gathered_pass.nbytes
    assert sizes[64] < 2.5 * 8 * sizes[8]
