"""Double oracle (PSRO): populations that grow by best responses to mixtures of their policies.

Payoffs are arrays by seat, [N, n_1, ..., n_N], and a meta-solver maps them to joint probabilities
of line-ups, [n_1, ..., n_N]. Two players are the case N = 2. A symmetric game has one role, and its
arrays have the same numbers in every order of the seats. An `EmpiricalGame` would need a row of all
policies for each line-up, and their covariances: 100 million numbers for the 131,000 line-ups of
Leduc poker. `Iteration.game` makes one on demand.

Best responses go against joint probabilities. An exact response to them needs only how likely the
others and chance reach each terminal node, so correlated and independent play are one computation.
"""
