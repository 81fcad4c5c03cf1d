"""Learning algorithms, one file each.

Other packages know an algorithm only by its entry in `config/algorithm_registry.py`; a user's class
declares the same attributes, so no code checks an algorithm's name. `rollout_algorithm.py` has the
base class of PPO, which adds the losses of rows. `transition_algorithm.py` has the base class of
DQN and IQN, which add the loss of samples.

Losses and gradients are implemented twice, and tests compare the results. torch's autograd
(`autograd.py`, `dqn.py`, `iqn.py`) supports every network, action type and device. `kernels/`
supports perceptrons on the CPU, and `kernels/objective.py` (for PPO) all networks on the CPU.
"""
