"""Every path of training beside its best peer: `python benchmarks/paths.py`, in turns, in one run.

A path is a kind of network, observation, action and algorithm. Each is measured for so many
policies (--counts), each on a fixed seat; with eight also dealt to seats by round robin; and
beside Stable-Baselines3 (a program in one file where it has no such thing) with as many rows, all
for one network with both cores as threads, which is the fastest way. The game costs next to nothing
(`path_game.py`), so it is training that is measured. Shares of the floor are against this machine's
own matrix products and memory.

--quick takes five minutes: one short round of eight policies.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from peers import peers_python, program
from recording import FIGURES, Bar, Results, options_of, text
from stacks import Watch, measure

from remuda.policies.networks.kernels.gemm import multiply

HERE = Path(__file__).parent
EPOCHS = 4
BATCH = 64
"""Samples of an update of a Q-learner."""


@dataclass(frozen=True)
class PathOfTraining:
    """A trained path, and its settings for the peer.

    Attributes:
        algorithm: of ours.
        peer: the peer's algorithm; `central_ppo` is PPO with a critic of all agents' observations.
        seen: observations: flat, grid or screen.
        does: actions: discrete, masked, several or continuous.
        hidden: units of the hidden layers.
        convolutions: channels, kernel and stride of each.
        towers: whether policy and value have a network each.
        recurrent: units of the recurrent layer; the peer's has as many, of an LSTM.
        own: whether our network is a module of the user's.
        copies: of the game.
        most: policies that the path is measured with; more of them need more memory than there is.
        slow: how many times as long it is measured, so that many updates are done; with many
            policies convolutions take longer still.
    """

    algorithm: str = "ppo"
    peer: str = "ppo"
    seen: str = "flat"
    does: str = "discrete"
    hidden: tuple[int, ...] = (64, 64)
    convolutions: tuple[tuple[int, int, int], ...] = ()
    towers: bool = False
    recurrent: int = 0
    own: bool = False
    copies: int = 64
    most: int = 256
    slow: float = 1.0

    @property
    def activation(self) -> str:
        """The activation after a layer."""
        return "relu" if self.convolutions or not self.takes_rollouts else "tanh"

    @property
    def takes_rollouts(self) -> bool:
        """Return whether ours is PPO, with or without a centralised critic."""
        return self.algorithm in ("ppo", "mappo")

    def tree(self, policies: int, dealt: bool = False) -> dict[str, Any]:
        """The configuration of a run of so many policies."""
        network: dict[str, Any] = {"hidden": list(self.hidden), "activation": self.activation}
        if self.own:
            network = {"module": "path_game:features", "hidden": []}
        if self.convolutions:
            network["convolutions"] = [list(layer) for layer in self.convolutions]
            network["layout"] = "chw"
        network["shared"] = not self.towers if self.takes_rollouts else None
        if self.recurrent:
            network["recurrent"] = self.recurrent
        policy: dict[str, Any] = {"algorithm": self.algorithm, "network": network}
        if self.algorithm == "mappo":
            policy["value"] = {"input": "joint"}
        if self.takes_rollouts:
            policy["ppo"] = {"rollout_length": 128, "epochs": EPOCHS, "minibatches": 4}
        else:  # as the peer's: neither double nor dueling, one step ahead, a sample a step
            if self.algorithm != "sac":
                network["dueling"], policy[self.algorithm] = False, {"double": False}
            policy |= {
                "ppo": {"minibatches": None},  # not what `stacks` sets
                "n_frames": 1,
                "n_steps": 1,
                "batch_size": BATCH,
                "experience": {
                    "replay_ratio": 1.0,
                    "capacity": 50_000,
                    "learning_starts": 2_000,
                    "on_full": "wait",
                },
            }
        tree: dict[str, Any] = {
            "game": "path_game:PathGame",
            "env": {
                "num_envs": self.copies,
                "options": {"num_agents": policies, "seen": self.seen, "does": self.does},
            },
            "policy": policy,
        }
        if dealt:
            tree["population"] = {"matchmaker": "round_robin", "policies": policies}
        return tree

    def asked(self, agents: int, threads: int) -> str:
        """The argument of the peer's program."""
        return json.dumps(
            {
                "algorithm": self.peer,
                "seen": self.seen,
                "does": self.does,
                "copies": self.copies,
                "agents": agents,
                "hidden": self.hidden,
                "convolutions": self.convolutions,
                "activation": self.activation,
                "towers": self.towers,
                "recurrent": self.recurrent,
                "threads": threads,
            }
        )

    def work(self) -> tuple[float, float]:
        """Return the floating-point operations of a trained step's matrix products, and its bytes.

        Of PPO: one pass forward to act, one for values, and in each epoch one forward and one back,
        which is twice as much but for the first layer, whose inputs need no gradient. Of
        Q-learners: one to act, one of the target network, and one forward and back. Bytes are those
        of observations: written once, and read once a pass.
        """
        first, rest = self._products()
        if self.algorithm == "sac":  # two critics and their targets; the actor also learns
            operations = 2 * 2 * (first + rest) * 3 + 2 * 6 * (first + 2 * rest)
            passes = 3
        elif self.takes_rollouts:
            operations = 2 * (first + rest) * (2 + EPOCHS) + 2 * EPOCHS * (first + 2 * rest)
            passes = 2 + EPOCHS
        else:
            operations = 2 * (first + rest) * 3 + 2 * (first + 2 * rest)
            passes = 3
        size = {"flat": 500, "grid": 605, "screen": 28_224}[self.seen]
        return float(operations), float(size * (passes + 1))

    def _products(self) -> tuple[float, float]:
        """Multiplications of one pass forward: of the first layer, and of all others."""
        layers: list[float] = []
        if self.convolutions:
            channels, side = {"grid": (5, 11), "screen": (4, 84)}[self.seen]
            for out, kernel, stride in self.convolutions:
                side = (side - kernel) // stride + 1
                layers.append(side * side * out * channels * kernel * kernel)
                channels = out
            width = channels * side * side
        else:
            width = 125
        towers = 2 if self.towers else 1
        quantiles = 12 if self.algorithm == "iqn" else 1
        for i, units in enumerate(self.hidden):
            layers.append(towers * width * units * (quantiles if i else 1))
            if quantiles > 1 and not i:
                layers.append(quantiles * 64 * units)
            width = units
        if self.recurrent:
            layers.append(3 * self.recurrent * (width + self.recurrent))
            width = self.recurrent
        outputs = {"discrete": 4, "masked": 16, "several": 10, "continuous": 4}[self.does]
        layers.append(quantiles * width * (outputs + (self.algorithm == "ppo")))
        return layers[0], sum(layers[1:])


GRID = ((16, 3, 1), (32, 3, 1))
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
Q = {"peer": "dqn", "algorithm": "dqn"}
QUANTILES = {"peer": "iqn", "algorithm": "iqn"}
PATHS: dict[str, PathOfTraining] = {
    "64x64, one trunk": PathOfTraining(),
    "64x64, two towers": PathOfTraining(towers=True),
    "256x256": PathOfTraining(hidden=(256, 256)),
    "several choices at once": PathOfTraining(does="several"),
    "continuous actions": PathOfTraining(does="continuous"),
    "masks": PathOfTraining(does="masked", peer="masked_ppo"),
    "convolutions, 5x11x11": PathOfTraining(seen="grid", hidden=(64,), convolutions=GRID, slow=3.0),
    "convolutions, 4x84x84": PathOfTraining(
        seen="screen", hidden=(512,), convolutions=NATURE, copies=8, most=8, slow=6.0
    ),
    "GRU 64": PathOfTraining(recurrent=64, peer="recurrent_ppo"),
    "own module, 64x64": PathOfTraining(own=True),
    "MAPPO 64x64": PathOfTraining(algorithm="mappo", peer="central_ppo", towers=True),
    "DQN 64x64, 1 copy": PathOfTraining(**Q, copies=1, most=64),
    "DQN 64x64, 64 copies": PathOfTraining(**Q, most=64),
    "DQN 250x250, 1 copy": PathOfTraining(**Q, hidden=(250, 250), copies=1, most=64),
    "DQN 250x250, 64 copies": PathOfTraining(**Q, hidden=(250, 250), most=64),
    "IQN 64x64, 1 copy": PathOfTraining(**QUANTILES, copies=1, most=64),
    "IQN 64x64, 64 copies": PathOfTraining(**QUANTILES, most=64),
    "IQN 250x250, 1 copy": PathOfTraining(
        **QUANTILES, hidden=(250, 250), copies=1, most=64, slow=3.0
    ),
    "IQN 250x250, 64 copies": PathOfTraining(**QUANTILES, hidden=(250, 250), most=64, slow=3.0),
    "SAC 64x64, 64 copies": PathOfTraining(
        algorithm="sac", peer="sac", does="continuous", most=64, slow=2.0
    ),
}
LEAST = {1: 1.2, 8: 1.5}
"""How many times as fast as its best peer each path is to be, by the number of policies."""
HEADLINE = {"64x64, one trunk": 2.5, "64x64, two towers": 2.5}
"""The same for eight policies, with a higher bar."""
IN_EACH_ROUND = 2.0
"""The same for the first of these paths, in the worst round."""
ROUNDS = 5
"""Rounds of these paths with eight policies, unless --quick."""
COST = 1.1
"""The limit for a step of many policies, relative to one of a single policy."""
DEALT = 0.95
"""The speed that dealt seats must reach, relative to fixed ones."""
BASE = 8


@dataclass
class Found:
    """The measurements of one path with a number of policies, one for each round."""

    fixed: list[float] = field(default_factory=list)
    played: list[float] = field(default_factory=list)
    dealt: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Ours over the peer's, round by round."""
        return [ours / peer for ours, peer in zip(self.fixed, self.peer, strict=False)]


def peaks() -> tuple[float, float]:
    """One core's floating-point operations a second in a product, and its bytes a second.

    The product is whichever is faster, torch's or our own, of a size that a cache holds.
    """
    torch.set_num_threads(1)
    one, other, out = torch.rand(1, 512, 256), torch.rand(1, 256, 256), torch.empty(1, 512, 256)
    block = np.zeros(2**25)
    copy = np.empty_like(block)
    products, moves = [], []
    ways = (lambda: torch.bmm(one, other, out=out), lambda: multiply(one, other, None, out))
    for _ in range(200):
        for way in ways:
            start = time.perf_counter()
            way()
            products.append(2 * 512 * 256 * 256 / (time.perf_counter() - start))
    for _ in range(12):
        start = time.perf_counter()
        np.copyto(copy, block)
        moves.append(2 * block.nbytes / (time.perf_counter() - start))
    return max(products), max(moves)


def trained(path: PathOfTraining, policies: int, seconds: float, dealt: bool = False) -> Any:
    """Agent-steps played and trained a second; of Q-learners, samples that they trained on."""
    slow = path.slow * (policies / BASE if path.convolutions and policies > BASE else 1.0)
    watch = measure(seconds * slow, **path.tree(policies, dealt))
    return watch.rates()[0], rate_of(path, watch)


def rate_of(path: PathOfTraining, watch: Watch) -> float:
    """The training speed in agent-steps a second; of Q-learners, samples."""
    return watch.rates()[1] if path.takes_rollouts else BATCH * watch.updates()


def measured(
    options: argparse.Namespace, chosen: list[str], python: str
) -> dict[tuple[str, int], Found]:
    """All paths, in turns."""
    cores = len(psutil.Process().cpu_affinity())
    found = {
        (name, count): Found()
        for name in chosen
        for count in options.counts
        if count <= PATHS[name].most
    }
    most = options.rounds if options.quick else max(options.rounds, ROUNDS)
    for number in range(most):
        for (name, count), there in found.items():
            if number >= options.rounds and (name not in HEADLINE or count != BASE):
                continue
            path = PATHS[name]
            played, rate = trained(path, count, options.seconds)
            there.fixed.append(rate)
            there.played.append(played)
            said = f"{name}, {count}: {text(rate)}"
            if count == BASE and not options.quick:
                there.dealt.append(trained(path, count, options.seconds, dealt=True)[1])
                said += f", dealt {text(there.dealt[-1])}"
            if count in LEAST:
                asked = path.asked(count, cores)
                alone = "iqn_alone.py" if path.peer == "iqn" else "sb3_paths.py"
                run = program(python, alone, asked)
                there.peer.append(run(options.peer_seconds))
                said += f", peer {text(there.peer[-1])}: {there.ratios[-1]:.2f}"
            print(f"round {number + 1}: {said}", flush=True)
    return found


def tell(
    results: Results, found: dict[tuple[str, int], Found], peak: float, bandwidth: float
) -> None:
    """Rows and bars."""
    cores = len(psutil.Process().cpu_affinity())
    for (name, count), there in found.items():
        operations, moved = PATHS[name].work()
        floor = cores / (operations / peak + moved / bandwidth)
        rate, single = median(there.fixed), found.get((name, 1))
        row: dict[str, Any] = {
            "path": name,
            "policies": count,
            "trained/s": rate,
            "played/s": median(there.played),
            "lowest": min(there.fixed),
            "highest": max(there.fixed),
            "of the floor": rate / floor,
            "peer/s": median(there.peer) if there.peer else None,
            "times the peer": median(there.ratios) if there.peer else None,
            "from": min(there.ratios, default=None),
            "to": max(there.ratios, default=None),
            "dealt/fixed": median(there.dealt) / rate if there.dealt and rate else None,
            "cost against 1": (
                median(single.fixed) / rate if single and count > 1 and rate else None
            ),
        }
        results.row(row)
        what = f"{name}, {count} polic{'y' if count == 1 else 'ies'}"
        if there.peer:
            least = HEADLINE.get(name, LEAST[count]) if count == BASE else LEAST[count]
            results.bar(f"{what}: times its peer", row["times the peer"], least=least)
            if count == BASE and name == next(iter(HEADLINE)):
                results.bar(
                    f"{what}: the same in the worst round", row["from"], least=IN_EACH_ROUND
                )
        if row["dealt/fixed"] is not None:
            results.bar(f"{what}: dealt, of fixed", row["dealt/fixed"], least=DEALT)
        if row["cost against 1"] is not None:
            results.bar(f"{what}: cost of a step, of 1's", row["cost against 1"], most=COST)
    print(f"one core: {peak / 1e9:.0f} GFLOP/s in products, {bandwidth / 1e9:.1f} GB/s of copies")


def main() -> None:
    """Measure the chosen paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--peers", help="an interpreter with stable-baselines3 and sb3-contrib")
    add("--paths", nargs="+", metavar="PART", help="those whose names have such a part")
    add("--counts", type=int, nargs="+", default=[1, 8, 64], help="of policies")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=12.0, help="of each of our runs, with 4 to warm up")
    add("--peer-seconds", type=float, default=6.0, help="of each of the peer's")
    add("--quick", action="store_true", help="five minutes: eight policies, one round")
    add("--again", action="store_true", help="keep what is recorded of all others")
    options = options_of(parser)
    if options.quick:
        options.counts, options.rounds = [BASE], 1
        options.seconds, options.peer_seconds = 7.0, 2.0
    chosen = [n for n in PATHS if not options.paths or any(part in n for part in options.paths)]
    if not chosen:
        parser.error(f"no path has such a part in its name; there are: {', '.join(PATHS)}")
    python = options.peers or peers_python("requirements.txt")
    peak, bandwidth = peaks()
    some = f".{'-'.join(options.paths)}" if options.paths and not options.again else ""
    results = Results(f"paths{some}")
    tell(results, measured(options, chosen, python), peak, bandwidth)
    if options.again:
        keep_others(results)
    results.finish(options)


def keep_others(results: Results) -> None:
    """Put what is recorded of all that was not measured beside what was, in the usual order."""
    recorded = json.loads((FIGURES / "paths.json").read_text())["figures"]
    new = {(row["path"], row["policies"]) for row in results.rows}
    measured_now = tuple(f"{path}, {count} polic" for path, count in new)
    others = [row for row in recorded["rows"] if (row["path"], row["policies"]) not in new]
    order = {name: i for i, name in enumerate(PATHS)}
    results.rows = sorted(
        [*others, *results.rows], key=lambda row: (order[str(row["path"])], row["policies"])
    )
    bars = [bar for bar in recorded["bars"] if not bar["what"].startswith(measured_now)]
    results.bars = sorted(
        [*(Bar(**bar) for bar in bars), *results.bars],
        key=lambda bar: max(
            (i for n, i in order.items() if bar.what.startswith(f"{n}, ")), default=-1
        ),
    )


if __name__ == "__main__":
    main()
