"""Fitting step times to what was measured."""
