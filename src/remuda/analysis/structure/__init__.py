"""The structure of a population: cycles, diversity, behaviour."""
