"""What an exception means: memory that is used up, an adapter's fault, a device that is lost."""

from __future__ import annotations

import traceback

import torch

from ..adapter_error import AdapterError


class OutOfMemory(Exception):
    """A prefill would take more than the worker was given."""


# What libraries and the driver say where torch's allocator is not asked: loading kernels, graphs, cuBLAS' handles.
USED_UP = ("out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception says that memory is used up."""
    if isinstance(error, (OutOfMemory, MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in USED_UP)


def to_adapter_error(error: Exception) -> AdapterError:
    """Gives an exception of an adapter as an `AdapterError`, from any source."""
    return (
        error
        if isinstance(error, AdapterError)
        else AdapterError(f"{type(error).__name__}: {error}")
    )


def is_fatal(error: Exception) -> bool:
    """Whether the device is lost: nothing that is launched afterwards can succeed."""
    accelerator = getattr(torch, "AcceleratorError", None)
    return (
        accelerator is not None and isinstance(error, accelerator) and not is_out_of_memory(error)
    )


def free_cached_memory(error: Exception, device: torch.device) -> None:
    """Lets go of what the allocator keeps, after memory ran out."""
    if not is_out_of_memory(error):
        return
    # The frames that it came through hold activations, which would stay in the allocator otherwise.
    fault: BaseException | None = error
    while fault is not None:
        traceback.clear_frames(fault.__traceback__)
        fault = fault.__cause__ or fault.__context__
    if device.type == "cuda":
        torch.cuda.empty_cache()
