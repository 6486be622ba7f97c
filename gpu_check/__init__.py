"""Takes what the simulator says about a scenario and tries to prove it wrong with real tensors.

The only package that may import torch. Importing this one does not: the command line says what is missing first.
"""
