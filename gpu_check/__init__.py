"""Will confirm a run's bytes, contents and step times with real tensors on a GPU; not written yet.

The only package that may import torch. Importing this one does not.
"""
