"""The native part of the package, or a clear word on how to get it."""

try:
    from confide import _native as native
except ImportError as error:
    raise ImportError(
        "the native part of confide is missing: install the package with `pip install .` in a checkout "
        "(the worker and the kernels do without it)"
    ) from error

__all__ = ["native"]
