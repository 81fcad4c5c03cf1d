"""Networks as stacks of K policies, the losses they learn by, and how they act."""
