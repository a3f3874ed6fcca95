"""The named rings, as the ring's own kernels have them, and the one that both roles take by default."""

from __future__ import annotations

from ..cuda.parameters import SECURITY_BITS_MIN, ParameterSet, dangerous_find_set, find_set

DEFAULT = "rlwe-4096-q100-flood40"

__all__ = ["DEFAULT", "SECURITY_BITS_MIN", "ParameterSet", "dangerous_find_set", "find_set"]
