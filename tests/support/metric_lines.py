"""Records of the metrics as tests look at them: plain data, a line, numbers by tag."""

import json

from remuda.runs.metrics import groups


def plain_of(record):
    """A record as plain data."""
    policies = {name: vars(policy) for name, policy in record.policies.items()}
    members = {name: vars(member) for name, member in record.members.items()}
    return {**vars(record), "policies": policies, "members": members}


def line_of(record):
    """A record as a line of `metrics.jsonl`."""
    return json.dumps(plain_of(record))


def scalars(record):
    """A record's numbers by tag: `run/...`, `game/...`, `agent_0/...`."""
    for group, numbers in groups(record):
        for name, value in numbers.items():
            if value is not None:
                yield f"{group}/{name}", float(value)
