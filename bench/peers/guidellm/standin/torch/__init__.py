"""Stands in for PyTorch where GuideLLM hands out prompts: its data loader, and nothing else.

GuideLLM 0.8.1 needs torch for this one class; the package is 2.7 GB to fetch and 4.7 GB on disk. What
is here walks a data set in order, in this process. No clock of GuideLLM's passes through it.
"""

from . import nn, utils

__all__ = ["Generator", "Tensor", "nn", "utils"]
__version__ = "0.0.0+standin"


class Generator:
    """Keeps a seed, which nothing here draws from: the order is the data set's."""

    def manual_seed(self, seed):
        self.seed = seed
        return self


class Tensor:
    """Nothing is one: others ask whether a value is."""
