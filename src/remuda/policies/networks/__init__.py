"""Neural networks that run K policies at once.

An encoder (`encoder.py`) may precede the linear layers: convolutions, or a user's module that
`torch.func` runs for K policies (`lifted.py`). An encoder defines the shapes of its parameters, and
receives the parameters of K policies as arguments. Before a pass, learned parameters become *plain
weights*: noise is drawn, and the dueling head is folded into one linear layer.
"""
