"""Which layers a model has, family by family: one small module each, read off vLLM 0.33.0's model classes.

Every module has ``layers(config)``: the layers in the order vLLM constructs them, which is not always the order of
depth and decides the groups. ``drafts(config)``, where there is one: the layers of the model's own draft modules
(multi-token prediction). ``SINKS``, ``LAYOUT``, ``POOLING`` and ``ATTENTION_FREE`` say what else is special about it.
"""
