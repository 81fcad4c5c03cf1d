"""Adapters of other libraries' environments to `VectorEnv`.

An adapter holds one object for each copy and fills arrays that persist. Findings that are no
errors, such as an observation outside its `Box`, are the environment's `notes`; the actor copies
them to the scoreboard, and the coordinator reports each once and adds it to `Result.notes`.
"""
