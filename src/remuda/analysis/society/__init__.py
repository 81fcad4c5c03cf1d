"""Social outcomes: welfare, fairness and Pareto fronts."""
