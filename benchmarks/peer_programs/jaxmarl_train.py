"""A training program of JaxMARL's repository, timed without its compilation.

Argument, as JSON: `repository` (a checkout of JaxMARL), `program` (below its baselines, such as
IPPO/ippo_ff_mpe), `config` (its YAML file there), `overrides`, `layout` (of Overcooked) and
`seeds`. Prints, as JSON, the trained agent-steps a second of each seed and what its last tenth of
training returned. The program logs to Weights & Biases, which a list replaces here.
"""

import importlib.util
import json
import sys
import time
import types
from pathlib import Path

import jax
import jaxmarl
import numpy as np
from omegaconf import OmegaConf

asked = json.loads(sys.argv[1])
log = []
sys.modules["wandb"] = types.SimpleNamespace(
    log=lambda found: log.append({k: float(np.mean(v)) for k, v in found.items() if np.ndim(v) < 1})
)
baselines = Path(asked["repository"]) / "baselines"
file = baselines / f"{asked['program']}.py"
spec = importlib.util.spec_from_file_location(file.stem, file)
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

# By their own reader: 2e-3 is a string in YAML 1.1, and a number here.
config = OmegaConf.to_container(OmegaConf.load(file.parent / "config" / asked["config"]))
config |= asked["overrides"]
if asked.get("layout"):
    layouts = program.overcooked_layouts
    config["ENV_KWARGS"] = {**config["ENV_KWARGS"], "layout": layouts[asked["layout"]]}
    # The program with convolutions asks for the action space of no agent in particular.
    type(jaxmarl.make("overcooked")).action_space.__defaults__ = ("agent_0",)
for name in ("TOTAL_TIMESTEPS", "NUM_STEPS", "NUM_ENVS"):
    config[name] = int(config[name])
train = jax.jit(program.make_train(config)).lower(jax.random.PRNGKey(0)).compile()

for seed in asked["seeds"]:
    log.clear()
    begun = time.perf_counter()
    jax.block_until_ready(train(jax.random.PRNGKey(seed)))
    jax.effects_barrier()
    seconds = time.perf_counter() - begun
    end = log[-max(len(log) // 10, 1) :]
    found = {
        "seed": seed,
        "seconds": seconds,
        "trained": config["NUM_UPDATES"] * config["NUM_STEPS"] * config["NUM_ACTORS"] / seconds,
    }
    for name in ("returned_episode_returns", "returns", "win_rate"):
        values = [each[name] for each in end if name in each and np.isfinite(each[name])]
        if values:
            found[name] = float(np.mean(values))
    print(json.dumps(found), flush=True)
