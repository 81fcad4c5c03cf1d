"""Experience, which actors write into shared memory and learners read.

A stream is one seat in one environment copy. A segment holds consecutive steps of one stream within
one episode. A ring holds the segments of one policy and one actor; the oldest is overwritten first.
"""
