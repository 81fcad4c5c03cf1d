"""Experience, which actors write into shared memory and learners read.

A stream is one seat in one environment copy. A segment holds consecutive steps of one stream within
one episode. A ring holds the segments of one policy and one actor; the oldest is overwritten first.
So a ring has one writer, and a dead actor leaves at most one half-ready segment in it.

A learner with a complete rollout copies whole segments out and publishes that before it trains, so
no segment is handed out twice, and its slots are free at once: actors play the next rollout while
learners train on the last. An actor that no longer waits overwrites; the learner sees that by the
sequence, skips those segments and counts them. In `async`, a learner that is far behind takes the
newest whole rollout. Backpressure counts all actors together, so others make up for a dead one.

Replay changes no shared state, so any learner may sample from any ring that it can see, such as
those of its `experience.group`.
"""
