"""Write your own algorithms: A2C on rollouts, and soft actor-critic on single steps.

python examples/own_algorithm.py [A2C|SAC] [TURNS]
"""

import sys

import torch

import remuda


class A2C(remuda.RolloutAlgorithm):
    """Advantage actor-critic (Mnih et al. 2016): one gradient step for each rollout."""

    preset = {"learning_rate": 2e-3, "ppo": {"epochs": 1, "minibatches": 1}}
    unused = ("ppo.clip", "ppo.value_clip")

    def losses(self, rows):
        """Return the losses of policy and value for every row of the minibatch: [G, B] each."""
        policy = -rows.advantages * rows.log_probs
        value = 0.5 * (rows.targets - rows.values).square()
        return policy, value


class SAC(remuda.TransitionAlgorithm):
    """Soft actor-critic for discrete actions (Christodoulou 2019), with a fixed temperature."""

    samples = True
    heads = ("policy", "q1", "q2")
    settings = {"temperature": 0.05, "tau": 0.01}
    preset = {"n_frames": 1, "n_steps": 1, "discount": 0.99, "network": {"hidden": (64, 64)}}
    unused = ("dqn.double", "dqn.huber", "dqn.target_every", "network.dueling")

    def loss(self, batch, part):
        """Return the loss of every sample [G, B], and the value of its action."""
        temperature = self.setting(part, "temperature").unsqueeze(-1)
        with torch.no_grad():
            log_pi = self.head(part, "policy", batch.s_t).log_softmax(-1)
            q = torch.minimum(
                self.head(part, "q1", batch.s_t, target=True),
                self.head(part, "q2", batch.s_t, target=True),
            )
            value = (log_pi.exp() * (q - temperature * log_pi)).sum(-1)
            target = batch.r_t + batch.discount_t * value
        log_pi = self.head(part, "policy", batch.s_tm1).log_softmax(-1)
        q1, q2 = self.head(part, "q1", batch.s_tm1), self.head(part, "q2", batch.s_tm1)
        best = torch.minimum(q1, q2).detach()
        loss = (log_pi.exp() * (temperature * log_pi - best)).sum(-1)
        for q in (q1, q2):
            taken = q.gather(-1, batch.a_tm1.unsqueeze(-1)).squeeze(-1)
            loss = loss + 0.5 * (taken - target).square()
        return loss, taken

    def renew_targets(self, part):
        """Let the targets follow slowly."""
        part.target.flat.lerp_(part.online.flat, self.setting(part, "tau"))


def main() -> None:
    """Train CartPole by one of them."""
    name = sys.argv[1] if len(sys.argv) > 1 else "A2C"
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 50_000
    result = remuda.train(
        "gymnasium:CartPole-v1",
        policy={"algorithm": f"own_algorithm:{name}"},
        env={"num_envs": 8},
        run={"turns": turns, "evaluate_episodes": 20},
    )
    print(result.evaluation.mean(0))


if __name__ == "__main__":
    main()
