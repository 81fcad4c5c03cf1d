"""Experience, which actors write into shared memory and learners read.

A stream is one seat in one environment copy. A segment holds consecutive steps of a stream, of one
episode or of several short ones. A ring holds the segments of one policy and one actor; the oldest
is overwritten first. So a ring has one writer, and an actor that dies leaves at most one unfinished
segment in it.

An on-policy learner copies a rollout of whole segments and publishes that before it trains. So no
segment is trained on twice, and actors can reuse the memory while the learner trains. An actor that
does not wait may overwrite segments first; the learner detects this, skips them and counts their
steps. In `async`, a learner that is far behind takes the newest complete rollout. Backpressure
counts all actors together, so the other actors make up for one that died.

Replay changes no shared state, so any learner may sample from any ring that it can see, such as
the rings of its `experience.group`.
"""
