"""A stand-in for CUDA graphs on the CPU, so that the recording and replaying of steps runs where no GPU is.

Under capture every operation is noted, and what it did to the worker's own tensors is undone, since a capture computes
nothing. A replay does the noted operations again, on the same tensors: what a step took from Python then shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.worker.schedule import Scheduler

import contextlib
from typing import ClassVar
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Noting(TorchDispatchMode):  # type: ignore[misc]  # torch is Any here
    """Notes each operation with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.notes.append((func, args, kwargs or {}, result))
        return result


class Graph:
    """What `torch.cuda.CUDAGraph` offers, as far as the worker uses it."""

    state: ClassVar[list[torch.Tensor]] = []
    replays = 0
    # Graphs that live, by pool. torch shares a pool with a new graph only while one of its graphs lives.
    living: ClassVar[dict[object, int]] = {}

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert pool is not None and capture_error_mode == "thread_local"
        assert self.living.get(pool, 1) > 0, "INTERNAL ASSERT FAILED: it->second->use_count > 0"
        self.living[pool] = self.living.get(pool, 0) + 1
        self.pool = pool
        self.kept = [tensor.clone() for tensor in self.state]
        self.mode = Noting()
        self.mode.__enter__()

    def capture_end(self) -> None:
        self.mode.__exit__(None, None, None)
        for tensor, kept in zip(self.state, self.kept):
            tensor.copy_(kept)

    def __del__(self) -> None:
        self.living[self.pool] -= 1

    def replay(self) -> None:
        Graph.replays += 1
        for func, args, kwargs, result in self.mode.notes:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again)):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Within it, steppers that are made record their steps by `Graph`."""
    nothing = mock.MagicMock()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("confide.worker.graphs.can_record", lambda device: True))
        for name, stand_in in (
            ("CUDAGraph", Graph), ("Stream", nothing), ("current_stream", nothing), ("synchronize", nothing),
            ("graph_pool_handle", object), ("stream", lambda stream: contextlib.nullcontext()),
        ):  # fmt: skip
            stack.enter_context(mock.patch(f"torch.cuda.{name}", stand_in))
        yield


def watch(scheduler: Scheduler) -> None:
    """What a capture must not change."""
    rows = [value for value in vars(scheduler.rows).values() if isinstance(value, torch.Tensor)]
    Graph.state = [*rows, scheduler.cache.values]
    Graph.replays = 0
