"""Mean and variance of a stream in one pass, without losing digits (Welford, 1962)."""

from fixedgraphdp.variance import Moments, empty, merge, update

__all__ = ["Moments", "empty", "merge", "update"]
