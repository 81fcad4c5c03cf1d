"""Fused losses of PPO, DQN and IQN."""
