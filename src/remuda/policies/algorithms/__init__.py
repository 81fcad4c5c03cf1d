"""Learning algorithms, one file each.

Other packages know an algorithm only by its entry in `config/algorithm_registry.py`; a user's class
declares the same, so no code checks an algorithm's name. `rollout_algorithm.py` needs the losses of
rows, which PPO provides; `transition_algorithm.py` the loss of samples, which DQN and IQN provide.

Loss and gradient exist twice, and tests compare the two. torch's autograd (`autograd.py`, `dqn.py`,
`iqn.py`) serves every network, action type and device. `kernels/` serves perceptrons on the CPU;
PPO's objective there (`kernels/objective.py`) also serves other networks on the CPU.
"""
