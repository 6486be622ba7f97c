"""The check of throughput: timed steps, the step-time model fitted to them, and the simulator's predictions beside."""

from gpu_check.throughput.check import throughput_claims

__all__ = ["throughput_claims"]
