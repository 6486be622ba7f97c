"""Measurements of speed; see README.md. Not part of the tests, and not of the package."""
