"""A game in which policies are born, brought forth by hand."""

from assembled import assemble
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.population.members.table_parts import MATCHES
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from support import Script

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 8},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 16, "minibatches": 1},
        "experience": {"segment_length": 5},
    },
    "policies": {"born_1": {"learning_rate": 0.125}, "policy_1": {"ppo": {"entropy_cost": 0.5}}},
    "population": {
        "matchmaker": "random",
        "policies": 3,
        "births": {"slots": 2},
        "snapshots": {"every": 1000, "keep": 2},
        "director": "support:Script",
    },
    "learners": {"processes": 1},
    "run": {"turns": None, "seconds": 3600},
}


class World:
    """A run in one process, that is led by hand."""

    def __init__(self, **tree):
        Script.commands, Script.seen = [], []
        whole = overlay(TREE, tree)
        if "game" in tree:
            whole["policies"] = tree.get("policies", {})
        self.config = load_config(whole)
        agents = make_env(self.config.game, 1).agents
        self.specs = policy_specs(self.config, agents)
        self.layout = layout = make_layout(self.config, len(self.specs))
        self.assembly = assemble(self.config, self.specs, layout, agents=agents)
        workers = [role.build() for role in self.assembly.roles()]
        self.actors = workers[: len(layout.copies)]
        self.learners = workers[len(layout.copies) :]
        self.table, self.league = self.assembly.table, self.actor.seats.league

    @property
    def actor(self):
        """The first, which may be replaced by its successor."""
        return self.actors[0]

    @actor.setter
    def actor(self, successor):
        self.actors[0] = successor

    def play(self, turns, learn=True):
        for _ in range(turns):
            for actor in self.actors:
                actor.work()
            for learner in self.learners if learn else []:
                while learner.work():
                    pass

    def matches(self, count, **how):
        """Play until so many more matches are over."""
        wanted = self.table.word(MATCHES) + count
        while self.table.word(MATCHES) < wanted:
            self.play(1, **how)

    def command(self, *commands, **how):
        """Have them carried out."""
        Script.commands = list(commands)
        while Script.commands:
            self.play(1, **how)

    def seated(self):
        """The live policies that were dealt a seat."""
        names = self.table.policies
        seated = (actor.seats.league.seated.ravel() for actor in self.actors)
        return {names[slot] for slots in seated for slot in slots if slot < len(names)}

    def names(self):
        return {str(m.ref) for m in self.league.population.learning}

    def records(self, kind):
        found = self.table.records.since(0)[0]
        return found[found["kind"] == kind]

    def learner(self, policy):
        for group in self.learners:
            for learner in group.learners:
                if policy in learner.policies:
                    return learner, learner.policies.index(policy)
        raise KeyError(policy)


FIRST = {"policy_0", "policy_1", "policy_2"}
