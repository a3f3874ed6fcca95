from .dataloader import DataLoader
from .dataset import IterableDataset

__all__ = ["DataLoader", "IterableDataset", "get_worker_info"]


def get_worker_info() -> None:
    """No worker processes: everything is handed out by the one that asks."""
    return
