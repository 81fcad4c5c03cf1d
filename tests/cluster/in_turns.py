"""Runs in lockstep without processes: on one node or on two, saved at any turn and resumed."""

import numpy as np

from cluster.two_nodes import TwoNodes
from equivalence.runs import BASE, PPO
from remuda.cluster.nodes import Placement
from remuda.config import overlay
from remuda.experience.ring import CONTENTS
from remuda.runtime.host import restore
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.state import pack
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.scoreboard import Learn, Play

ONE_NODE = Placement((0,), (0, 0))
SCATTERED = Placement((0,), (0, 1))
LEARNERS_THERE, ACTOR_THERE = Placement((0,), (1, 1)), Placement((1,), (0, 0))

DEALT = {
    "env": {"num_envs": 6},
    "population": {
        "matchmaker": "self_play",
        "policies": 4,
        "snapshots": {"every": 4, "keep": 2},
    },
    "policy": {"ppo": {"rollout_length": 10}},
}
PLAYED = {"env": {"num_envs": 3, "options": {"max_turns": 37}}, "policy": {"ppo": PPO}}
MORE = {
    "recurrent": {"policy": {"network": {"recurrent": 16}}},
    "n_step": {"policy": {"n_steps": 4}},
    "prioritised": {"policy": {"experience": {"prioritised": 0.6}}},
    "frames": {"policy": {"n_frames": 3}},
    "hybrid": {"policy": {"learning_mode": "hybrid", "ppo": {"normalise_rewards": False}}},
}


def settings(kind):
    """A configuration by words: the algorithm, then what else there is to the run."""
    algorithm, *words = kind.split()
    games = [word for word in words if word not in MORE]
    tree = overlay({"game": games[0]}, DEALT) if games else PLAYED
    for word in words:
        tree = overlay(tree, MORE.get(word, {}))
    tree = overlay(tree, {"policy": {"algorithm": algorithm}, "schedule": "lockstep"})
    return overlay(overlay(BASE, {"run": {"turns": 10**6}}), tree)


class InTurns:
    """A run whose actor and two learner processes work in turns, led by hand."""

    def __init__(self, kind, placement, checkpoints=None):
        tree = settings(kind)
        nodes = 1 + max(placement.homes)
        policies = tree.get("population", {}).get("policies", 2)
        groups = tuple(range(policies // 2)), tuple(range(policies // 2, policies))
        copies = (tree["env"]["num_envs"],)
        self.world = TwoNodes(placement, copies, groups, nodes, **tree)
        if checkpoints is not None:
            manifest = checkpoints.manifest(checkpoints.numbers()[-1])
            for assembly in self.world.assemblies:
                assembly.restore(checkpoints, manifest)
                for experience in assembly.experience.values():
                    forget_what_is_not_committed(experience)
        self.actor, *self.learners = self.workers = [self.world.role(i) for i in range(3)]
        if checkpoints is not None:
            for worker in self.workers:
                restore(worker, checkpoints)
        if nodes > 1:
            self.world.link()
        self.pump()

    def pump(self):
        if len(self.world.nodes) > 1:
            self.world.pump_all()

    def play(self, turns):
        for _ in range(turns):
            self.actor.work()
            self.pump()
            for learner in self.learners:
                while learner.work():
                    pass
            self.pump()

    def save(self, directory):
        checkpoints = Checkpoints(directory)
        number = checkpoints.begin()
        for worker in reversed(self.workers):
            for part in worker.parts:
                checkpoints.write(number, part, worker.state(part))
        checkpoints.write(number, COORDINATOR, self.world.assemblies[0].state())
        checkpoints.commit(Manifest(number, 1, 1.0, exact=True, config={}, files={}))
        return checkpoints

    def learned(self):
        """By part, all that a learner knows but for its experience and times; packed."""
        found = {}
        for learner in self.learners:
            for part in learner.parts:
                found[part] = pack({"algorithm": learner.state(part)["algorithm"]})
        return found

    def counted(self):
        """What the head would save of counts: steps by policy, and turns."""
        head = self.world.assemblies[0]
        return head.state()["written"], head.scoreboard.play(0)[
            [Play.TURNS, Play.AGENT_STEPS]
        ].tolist()

    def updates(self):
        board = self.world.assemblies
        homes = [self.world.placement.learners[g] for g in (0, 1)]
        names = [learner.parts for learner in self.learners]
        return np.array(
            [
                board[home].scoreboard.learn(name)[Learn.UPDATES]
                for home, group in zip(homes, names, strict=True)
                for name in group
            ]
        )


def forget_what_is_not_committed(experience):
    """Poison all rows of a ring that its learner may not see: its writer alone knows them."""
    for ring in experience.rings:
        # What is observed and allowed after the last step is committed with it.
        more = {"observations": ring.shape.n_frames, "masks": 1}
        for slot, committed in enumerate(ring.shared["committed"].tolist()):
            for name in CONTENTS:
                rows = ring.shared[name][slot, committed + more.get(name, 0) :]
                rows[...] = np.nan if rows.dtype.kind == "f" else 1
