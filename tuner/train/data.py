"""Shards of datasets: what each worker of a trainer reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, final

import numpy as np

from tuner.execution.attempt import current_attempt
from tuner.execution.session import get_context

from .running import current_run

DEFAULT_DATASET: Final = "train"
"""The dataset that `get_dataset_shard` returns if there are several and none is named."""


def shard_named(name: str | None) -> Any:
    """Return this worker's shard of a dataset of its trainer; see `api.get_dataset_shard`."""
    run = current_run()
    if run is None:
        raise RuntimeError(
            "get_dataset_shard was called outside a trainer; give the dataset to "
            "TorchTrainer(datasets={...})"
        )
    if name is None:
        name = next(iter(run.datasets)) if len(run.datasets) == 1 else DEFAULT_DATASET
    if name not in run.datasets:
        known = ", ".join(map(repr, run.datasets)) or "none at all"
        raise KeyError(f"there is no dataset {name!r}, only {known}; name it in datasets={{...}}")
    # The same object each time: it counts the passes, which are shuffled differently.
    if name not in run.shards:
        context = get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
        if not run.data_config.is_split(name):
            rank, size = 0, 1
        has_all_rows = run.data_config.has_all_rows(name)
        run.shards[name] = shard_of(run.datasets[name], rank, size, has_all_rows=has_all_rows)
    return run.shards[name]


def shard_of(
    dataset: Any, rank: int = 0, num_shards: int = 1, *, has_all_rows: bool = False
) -> Any:
    """Return one of several shards of equal length.

    Row ``i`` belongs to shard ``i % num_shards``. The last rows, where they are too few for all
    shards, are left out by default: workers with different numbers of batches would wait for each
    other for ever.

    Args:
        dataset: A list, a NumPy array, a dictionary of columns of equal length, a pandas data
            frame, a map-style dataset of PyTorch (or any object with ``__len__`` and
            ``__getitem__``), any iterable of rows, a function that returns one, or a dataset of Ray
            Data.
        rank: The shard, from 0.
        num_shards: How many there are.
        has_all_rows: Whether the last rows belong to the first shards, which then are one row
            longer than the others.

    Returns:
        A `DataShard`; that of a dataset of Ray Data is one of its own iterators.

    Raises:
        TypeError: If it is none of these.

    Example:
        >>> shard = shard_of([{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}, {"x": 5}], 1, 2)
        >>> list(shard), len(shard)
        ([{'x': 2}, {'x': 4}], 2)
        >>> next(iter(shard.iter_batches()))
        {'x': array([2, 4])}
    """
    if hasattr(dataset, "iter_torch_batches") and hasattr(dataset, "split"):  # of Ray Data
        equal = not has_all_rows
        return dataset if num_shards == 1 else dataset.split(num_shards, equal=equal)[rank]
    return DataShard(_source_of(dataset), rank, num_shards, has_all_rows=has_all_rows)


@final
class DataShard:
    """One worker's part of a dataset.

    It can be iterated over as often as needed, and so can what its methods return, unless the
    dataset itself is an iterator: at the end of that, another pass raises `RuntimeError`. `len` is
    the number of rows or batches, where the dataset knows its own.

    Args:
        source: The whole dataset.
        rank: Which shard, from 0.
        num_shards: How many there are.
        has_all_rows: Whether the first shards have one row more where rows are left over.
    """

    def __init__(
        self, source: _Source, rank: int, num_shards: int, *, has_all_rows: bool = False
    ) -> None:
        self._source = source
        self._rank = rank
        self._num_shards = num_shards
        self._has_all_rows = has_all_rows
        self._num_shuffles = 0

    def __len__(self) -> int:
        num_rows = self._source.num_rows
        if num_rows is None:
            raise TypeError("the dataset is an iterable, whose length is not known")
        num_even, num_left = divmod(num_rows, self._num_shards)
        return num_even + (self._has_all_rows and self._rank < num_left)

    def __bool__(self) -> bool:
        # Without this, an iterable of unknown length could not be tested for None in short.
        return True

    def count(self) -> int:
        """Return the number of rows."""
        return len(self)

    def __iter__(self) -> Iterator[Any]:
        return map(self._source.row, self._keys())

    def iter_rows(self) -> DataShard:
        """Return an iterable of the rows, which is the shard itself.

        Rows are items of a list, or dictionaries of a table.
        """
        return self

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> BatchIterable:
        """Return an iterable of batches of NumPy arrays, for one pass or many.

        Rows that are dictionaries, and tables, become dictionaries of arrays; tuples become tuples
        of arrays; other rows one array.

        Args:
            prefetch_batches: Accepted for compatibility: batches are made when they are asked for.
            batch_size: Rows in a batch, None for all.
            batch_format: ``"default"`` or ``"numpy"``, which are the same, or ``"pandas"`` for data
                frames of tables.
            drop_last: Whether an incomplete last batch is left out.
            local_shuffle_buffer_size: From how many rows the next one is drawn at random; None, the
                default, keeps their order.
            local_shuffle_seed: Seed of that; None for the trial's. The order is another one in each
                pass over the shard, and the same in a repeated run.

        Raises:
            ValueError: If `batch_size` or the buffer is not positive, or there is no such format.
        """
        if batch_format not in ("default", "numpy", "pandas"):
            raise ValueError(
                f"batch_format must be 'default', 'numpy' or 'pandas', got {batch_format!r}"
            )
        _check_positive("batch_size", batch_size)
        _check_positive("local_shuffle_buffer_size", local_shuffle_buffer_size)

        def begin() -> Iterator[Any]:
            keys = self._keys()
            if local_shuffle_buffer_size is not None:
                generator = np.random.default_rng(self._shuffle_seed(local_shuffle_seed))
                keys = _shuffled(keys, local_shuffle_buffer_size, generator)
            batches = self._batches(keys, batch_size, drop_last=drop_last)
            return map(_as_frame, batches) if batch_format == "pandas" else batches

        return BatchIterable(begin, self._num_batches(batch_size, drop_last=drop_last))

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        finalize_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
    ) -> BatchIterable:
        """Return an iterable of batches of tensors on the worker's device, for one pass or many.

        Args:
            prefetch_batches: As in `iter_batches`, like `batch_size`, `drop_last` and the shuffle.
            batch_size: Rows in a batch, None for all.
            dtypes: The tensors' ``torch.dtype``, one or a dictionary of them by column; None for
                that of the data.
            device: Where the tensors are; ``"auto"`` for the worker's device.
            collate_fn: Makes the batch from the arrays, in place of `dtypes` and `device`.
            drop_last: See `iter_batches`.
            local_shuffle_buffer_size: See `iter_batches`.
            local_shuffle_seed: See `iter_batches`.
            finalize_fn: Called with each batch; what it returns is yielded.
            pin_memory: Whether tensors are in pinned memory before they are copied to a GPU.

        Raises:
            TypeError: While it is iterated, if a column cannot be a tensor, for example text.
            ValueError: See `iter_batches`.
        """
        from .torch import get_device  # noqa: PLC0415  (the module needs torch)

        place = get_device() if device == "auto" else device
        arrays = self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )

        def finished(batch: Any) -> Any:
            made = (
                _as_tensors(batch, dtypes, place, pin_memory=pin_memory)
                if collate_fn is None
                else collate_fn(batch)
            )
            return made if finalize_fn is None else finalize_fn(made)

        return BatchIterable(
            lambda: map(finished, arrays), self._num_batches(batch_size, drop_last=drop_last)
        )

    def materialize(self) -> DataShard:
        """Return the shard itself; for code written for Ray Data."""
        return self

    def _keys(self) -> Iterator[Any]:
        """Yield what identifies each row of this shard: its index, or the row itself."""
        keys = iter(self._source.keys())
        least = self._rank + 1 if self._has_all_rows else self._num_shards
        while len(several := list(itertools.islice(keys, self._num_shards))) >= least:
            yield several[self._rank]

    def _batches(
        self, keys: Iterator[Any], batch_size: int | None, *, drop_last: bool
    ) -> Iterator[Any]:
        while several := list(itertools.islice(keys, batch_size)):
            if batch_size is None or len(several) == batch_size or not drop_last:
                yield self._source.batch(several)

    def _shuffle_seed(self, given: int | None) -> Sequence[int]:
        attempt = current_attempt()
        seed = given if given is not None else attempt.assignment.seed if attempt else 0
        number = self._num_shuffles
        self._num_shuffles += 1
        return (seed, self._rank, number)

    def _num_batches(self, batch_size: int | None, *, drop_last: bool) -> int | None:
        """Return the number of batches of one pass, None where it is not known."""
        if self._source.num_rows is None:
            return None
        num_rows = len(self)
        if batch_size is None:
            return min(num_rows, 1)
        return num_rows // batch_size if drop_last else -(-num_rows // batch_size)


@final
class BatchIterable:
    """Batches of a shard. Each pass over it reads the shard anew.

    `len` is their number, where the dataset knows its own length.

    Args:
        begin: Begins a pass.
        num_batches: How many batches there are, None where that is not known.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], num_batches: int | None) -> None:
        self._begin = begin
        self._num_batches = num_batches

    def __iter__(self) -> Iterator[Any]:
        return self._begin()

    def __len__(self) -> int:
        if self._num_batches is None:
            raise TypeError("the dataset is an iterable, whose number of batches is not known")
        return self._num_batches

    def __bool__(self) -> bool:
        return True  # see `DataShard`


class _Source(Protocol):
    """A dataset as rows that are found by keys."""

    num_rows: int | None
    """How many, None where that is not known."""

    def keys(self) -> Iterable[Any]:
        """Return the keys of all rows: their indices, or where there are none the rows."""

    def row(self, key: Any) -> Any:
        """Return a row."""

    def batch(self, keys: Sequence[Any]) -> Any:
        """Return rows as arrays."""


def _source_of(dataset: Any) -> _Source:
    if type(dataset).__module__.partition(".")[0] == "pandas" and hasattr(dataset, "iloc"):
        columns = {str(name): dataset[name].to_numpy() for name in dataset.columns}
        return _Table(columns)
    if isinstance(dataset, np.ndarray):
        return _Array(dataset)
    if isinstance(dataset, Mapping):
        return _Table({str(name): np.asarray(column) for name, column in dataset.items()})
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return _Items(dataset)
    if isinstance(dataset, Iterable):
        return _Stream(lambda: dataset)
    if callable(dataset):
        return _Stream(dataset)
    raise TypeError(
        f"a dataset must be a list, array, dictionary of columns, data frame, PyTorch dataset or "
        f"iterable, got {type(dataset).__name__}"
    )


@final
class _Table:
    """Columns of equal length."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise ValueError(
                "the columns of a dataset must have equal lengths, got "
                f"{ {name: len(column) for name, column in columns.items()} }"
            )
        self._columns = columns
        self.num_rows: int | None = lengths.pop() if lengths else 0

    def keys(self) -> Iterable[Any]:
        return range(self.num_rows or 0)

    def row(self, key: int) -> dict[str, Any]:
        return {name: column[key] for name, column in self._columns.items()}

    def batch(self, keys: Sequence[int]) -> dict[str, Any]:
        return {name: column[list(keys)] for name, column in self._columns.items()}


@final
class _Array:
    """Rows of an array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.num_rows: int | None = len(array)

    def keys(self) -> Iterable[Any]:
        return range(len(self._array))

    def row(self, key: int) -> Any:
        return self._array[key]

    def batch(self, keys: Sequence[int]) -> Any:
        return self._array[list(keys)]


@final
class _Items:
    """Items of a sequence or of a map-style dataset."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self.num_rows: int | None = len(items)

    def keys(self) -> Iterable[Any]:
        return range(len(self._items))

    def row(self, key: int) -> Any:
        return self._items[key]

    def batch(self, keys: Sequence[int]) -> Any:
        return _collated([self._items[key] for key in keys])


@final
class _Stream:
    """Rows of an iterable, or of what a function returns."""

    def __init__(self, begin: Callable[[], Iterable[Any]]) -> None:
        self._begin = begin
        self._latest: Any = None
        self.num_rows: int | None = None

    def keys(self) -> Iterable[Any]:
        rows = self._begin()
        # An iterator that comes again goes on where it is, which may be at its end.
        is_begun = rows is self._latest and isinstance(rows, Iterator)
        self._latest = rows
        is_empty = True
        for row in rows:
            is_empty = False
            yield row
        if is_empty and is_begun:
            raise RuntimeError(
                "the dataset is an iterator, which can be read only once, and is at its end; pass "
                "a list or a function that returns a new iterator"
            )

    def row(self, key: Any) -> Any:
        return key

    def batch(self, keys: Sequence[Any]) -> Any:
        return _collated(keys)


def _collated(rows: Sequence[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Mapping):
        return {name: _collated([row[name] for row in rows]) for name in first}
    if isinstance(first, tuple):
        columns = zip(*rows, strict=True)
        return (
            type(first)(*map(_collated, columns))
            if hasattr(first, "_fields")
            else tuple(map(_collated, columns))
        )
    if hasattr(first, "numpy"):  # a tensor
        rows = [row.numpy(force=True) for row in rows]
    return np.stack([np.asarray(row) for row in rows])


def _shuffled(
    keys: Iterator[Any], buffer_size: int, generator: np.random.Generator
) -> Iterator[Any]:
    buffer = list(itertools.islice(keys, buffer_size))
    for key in keys:
        place = int(generator.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = key
    for place in generator.permutation(len(buffer)):
        yield buffer[int(place)]


def _as_tensors(batch: Any, dtypes: Any, device: Any, *, pin_memory: bool, name: str = "") -> Any:
    import torch  # noqa: PLC0415  (only where tensors are wanted)

    if isinstance(batch, Mapping):
        return {
            column: _as_tensors(
                values,
                dtypes.get(column) if isinstance(dtypes, Mapping) else dtypes,
                device,
                pin_memory=pin_memory,
                name=str(column),
            )
            for column, values in batch.items()
        }
    if isinstance(batch, tuple):
        return tuple(_as_tensors(values, dtypes, device, pin_memory=pin_memory) for values in batch)
    try:
        tensor = torch.as_tensor(batch, dtype=dtypes)
    except TypeError as cause:
        column = f"column {name!r}" if name else "a row"
        raise TypeError(
            f"{column} has the type {batch.dtype}, which cannot be a tensor; leave it out, or pass "
            "collate_fn"
        ) from cause
    if pin_memory and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=pin_memory)


def _as_frame(batch: Any) -> Any:
    import pandas as pd  # noqa: PLC0415  (imported where it is needed, as everywhere)

    return pd.DataFrame(
        {name: list(column) if column.ndim > 1 else column for name, column in batch.items()}
        if isinstance(batch, Mapping)
        else {"data": list(batch)}
    )


def _check_positive(name: str, value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1, or None, got {value!r}")
