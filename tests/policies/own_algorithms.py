"""Algorithms that a user might bring along."""

import torch

import remuda
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.iqn import IQN


class Vanilla(remuda.RolloutAlgorithm):
    """The plain policy gradient, with a setting of its own."""

    preset = {"learning_rate": 5e-3, "ppo": {"epochs": 2, "minibatches": 2}}  # noqa: RUF012
    settings = {"push": 1.0}  # noqa: RUF012
    unused = ("ppo.clip", "ppo.value_clip")

    def losses(self, rows):
        push = rows.settings["push"]
        return -push * rows.advantages * rows.log_probs, (rows.targets - rows.values).square()


class Together(Vanilla):
    """Has one network for policy and value, unless told otherwise."""

    preset = {"network": {"shared": True}}  # noqa: RUF012


class Apart(Vanilla):
    """Has a network for each, likewise."""

    preset = {"network": {"shared": False}}  # noqa: RUF012


class Soft(remuda.TransitionAlgorithm):
    """Soft Q-learning (Haarnoja et al. 2017), with targets that follow slowly."""

    samples = True
    heads = ("q",)
    settings = {"temperature": 0.2, "tau": 0.05}  # noqa: RUF012
    preset = {"n_steps": 1, "learning_rate": 3e-3, "network": {"dueling": False}}  # noqa: RUF012
    unused = ("dqn.double", "dqn.huber", "dqn.target_every")

    def loss(self, batch, part):
        temperature = self.setting(part, "temperature")
        with torch.no_grad():
            q_t = self.head(part, "q", batch.s_t, target=True)
            scaled = q_t / temperature.unsqueeze(-1)
            target = batch.r_t + batch.discount_t * temperature * scaled.logsumexp(-1)
        q = self.head(part, "q", batch.s_tm1)
        taken = q.gather(-1, batch.a_tm1.unsqueeze(-1)).squeeze(-1)
        return (taken - target).square(), taken

    def renew_targets(self, part):
        part.target.flat.lerp_(part.online.flat, self.setting(part, "tau"))


class Former(Soft):
    """Names a setting as it was called before."""

    unused = ("target_every",)


class Finer(IQN):
    """Is an IQN with more quantiles."""

    preset = {"iqn": {"quantiles": 7}}  # noqa: RUF012


class Plain(DQN):
    """Is a DQN with a loss of its own, of single steps."""

    def loss(self, batch, part):
        return super().loss(batch, part)


class Remembers(Plain):
    """Has a recurrent network unless another is asked for."""

    preset = {"network": {"recurrent": 8}}  # noqa: RUF012


class Summed(Vanilla):
    """Has one loss for all rows."""

    def losses(self, rows):
        policy, value = super().losses(rows)
        return policy.sum(), value


class Averaged(Soft):
    """Has one loss for all samples."""

    def loss(self, batch, part):
        loss, value = super().loss(batch, part)
        return loss.mean(), value


class Headless(remuda.TransitionAlgorithm):
    def loss(self, batch, part):
        return batch.r_t, batch.r_t


class Unfinished(remuda.RolloutAlgorithm):
    """Has no losses."""


class Stranger:
    """Is no algorithm."""
