from typing import Generic, TypeVar

Item = TypeVar("Item")


class DataLoader(Generic[Item]):
    """One item at a time, in the data set's order."""

    def __init__(self, dataset, batch_size=1, shuffle=False, collate_fn=None, **_) -> None:
        if batch_size != 1 or shuffle:
            raise ValueError("the stand-in for torch hands out single items, in order")
        self.dataset = dataset
        self.collate = collate_fn or (lambda batch: batch[0])

    def __iter__(self):
        for item in self.dataset:
            yield self.collate([item])
