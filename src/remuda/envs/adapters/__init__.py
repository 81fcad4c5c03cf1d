"""Adapters of other libraries' environments to `VectorEnv`.

An adapter holds one of the library's environments for each copy, and writes into arrays that it
reuses. Warnings, such as an observation outside its `Box`, are added to the environment's `notes`;
the actor copies them to the scoreboard, and the coordinator reports each note once and adds it to
`Result.notes`.
"""
