"""Shards of datasets: equal parts, batches in the form of the data, and shuffling."""

import numpy as np
import pytest

from tuner.train.data import shard_of

ROWS = [{"x": number, "y": [number, -number]} for number in range(11)]


def rows_of(dataset, num_shards=2):
    return [list(shard_of(dataset, rank, num_shards)) for rank in range(num_shards)]


def test_shards_are_equally_long_and_share_no_row():
    first, second = rows_of(list(range(11)))
    assert first == [0, 2, 4, 6, 8]
    assert second == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("dataset", [list(range(11)), lambda: iter(range(11))])
def test_every_row_is_in_a_shard_where_all_are_to_count(dataset):
    shards = [shard_of(dataset, rank, 3, has_all_rows=True) for rank in range(3)]
    assert [list(shard) for shard in shards] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
    if isinstance(dataset, list):
        assert [len(shard) for shard in shards] == [4, 4, 3]
        assert len(shards[0].iter_batches(batch_size=3)) == 2
    few = [list(shard_of([7], rank, 3, has_all_rows=True)) for rank in range(3)]
    assert few == [[7], [], []]


def test_an_iterable_is_shared_like_a_list():
    assert rows_of(range(11)) == rows_of(lambda: iter(range(11))) == rows_of(list(range(11)))


def test_the_length_is_known_where_that_of_the_dataset_is():
    assert len(shard_of(ROWS, 0, 2)) == 5
    with pytest.raises(TypeError, match="not known"):
        len(shard_of(lambda: iter(ROWS), 0, 2))
    assert shard_of(lambda: iter(ROWS))


def test_batches_of_dictionaries_are_dictionaries_of_arrays():
    batches = list(shard_of(ROWS).iter_batches(batch_size=4))
    assert [len(batch["x"]) for batch in batches] == [4, 4, 3]
    assert batches[0]["y"].tolist() == [[0, 0], [1, -1], [2, -2], [3, -3]]


def test_an_incomplete_batch_can_be_left_out():
    assert len(list(shard_of(ROWS).iter_batches(batch_size=4, drop_last=True))) == 2
    assert len(list(shard_of(ROWS).iter_batches(batch_size=None))) == 1


def test_tuples_become_tuples_of_arrays():
    (images, labels), *_ = shard_of([(np.ones(2), 1), (np.zeros(2), 0)]).iter_batches()
    assert images.tolist() == [[1, 1], [0, 0]]
    assert labels.tolist() == [1, 0]


def test_tables_and_arrays_are_cut_without_visiting_rows():
    pd = pytest.importorskip("pandas")
    table = {"x": np.arange(6), "y": np.arange(6) * 2.0}
    for dataset in (table, pd.DataFrame(table)):
        shard = shard_of(dataset, 1, 2)
        (batch,) = shard.iter_batches()
        assert batch["x"].tolist() == [1, 3, 5]
        assert batch["y"].tolist() == [2.0, 6.0, 10.0]
        assert next(iter(shard)) == {"x": 1, "y": 2.0}
    (batch,) = shard_of(np.arange(6), 1, 2).iter_batches()
    assert batch.tolist() == [1, 3, 5]


def test_a_batch_can_be_a_data_frame():
    pd = pytest.importorskip("pandas")
    (frame,) = shard_of(ROWS).iter_batches(batch_format="pandas")
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["x", "y"]


def test_a_shuffle_draws_every_row_once_and_another_order_in_each_pass():
    shard = shard_of(list(range(100)))

    def passed():
        batches = shard.iter_batches(local_shuffle_buffer_size=50, local_shuffle_seed=7)
        return np.concatenate(list(batches)).tolist()

    first, second = passed(), passed()
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    assert first != list(range(100))


def test_the_same_seed_gives_the_same_order():
    def passed():
        shard = shard_of(list(range(50)))
        (batch,) = shard.iter_batches(local_shuffle_buffer_size=50, local_shuffle_seed=7)
        return batch.tolist()

    assert passed() == passed()


def many_passes(shard):
    pytest.importorskip("torch")
    options = {"batch_size": 4, "local_shuffle_buffer_size": 9}
    yield shard
    yield shard.iter_rows()
    yield shard.iter_batches(batch_size=4)
    yield shard.iter_batches(batch_size=4, batch_format="pandas")
    yield shard.iter_batches(**options)
    yield shard.iter_torch_batches(batch_size=4)
    yield shard.iter_torch_batches(**options, collate_fn=lambda batch: batch)


@pytest.mark.heavy
@pytest.mark.parametrize("dataset", [ROWS, lambda: iter(ROWS)], ids=["list", "function"])
def test_what_is_made_once_before_the_epochs_can_be_iterated_in_each(dataset):
    for iterable in many_passes(shard_of(dataset)):
        lengths = [sum(1 for _ in iterable) for _ in range(3)]
        assert lengths[0] in (3, 11)
        assert lengths == lengths[:1] * 3
        assert iterable  # also where its length is not known


def test_a_shuffle_differs_between_the_passes_over_one_iterable_and_follows_the_seed():
    def orders():
        shard = shard_of(list(range(100)))
        batches = shard.iter_batches(local_shuffle_buffer_size=50, local_shuffle_seed=7)
        return [np.concatenate(list(batches)).tolist() for _ in range(3)]

    first, second, third = orders()
    assert sorted(first) == sorted(second) == sorted(third) == list(range(100))
    assert first != second != third != first
    assert orders() == [first, second, third]


def test_two_iterables_that_are_read_by_turns_disturb_neither_each_other_nor_a_plain_pass():
    shard = shard_of(list(range(20)))
    plain, shuffled = (
        shard.iter_batches(batch_size=4),
        shard.iter_batches(batch_size=4, local_shuffle_buffer_size=20, local_shuffle_seed=1),
    )
    numbers, drawn = np.concatenate(list(zip(plain, shuffled, strict=True)), axis=1).tolist()
    assert numbers == sorted(drawn) == list(range(20))
    (again,) = shard_of(list(range(20))).iter_batches(
        local_shuffle_buffer_size=20, local_shuffle_seed=1
    )
    assert drawn == again.tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 11, 12, None])
def test_the_number_of_batches_is_known_where_that_of_rows_is(batch_size, drop_last):
    pytest.importorskip("torch")
    shard = shard_of(ROWS)
    for make in (shard.iter_batches, shard.iter_torch_batches):
        batches = make(batch_size=batch_size, drop_last=drop_last)
        assert len(batches) == len(list(batches))
    assert len(shard_of([]).iter_batches(batch_size=batch_size)) == 0
    with pytest.raises(TypeError, match="not known"):
        len(shard_of(lambda: iter(ROWS)).iter_batches(batch_size=batch_size))


def test_an_iterator_that_is_at_its_end_is_no_empty_dataset():
    shard = shard_of(iter(ROWS))
    batches = shard.iter_batches(batch_size=4)
    assert len(next(iter(batches))["x"]) == 4
    assert [len(batch["x"]) for batch in batches] == [4, 3]  # it goes on where it is
    for iterable in (batches, shard):
        with pytest.raises(RuntimeError, match=r"can be read only once.*; pass a list or a f"):
            list(iterable)


def test_a_function_that_returns_the_same_iterator_again_is_noticed():
    rows = iter(ROWS)
    batches = shard_of(lambda: rows).iter_batches()
    assert len(list(batches)) == 1
    with pytest.raises(RuntimeError, match="can be read only once"):
        list(batches)
    assert list(shard_of(lambda: iter(()))) == []


@pytest.mark.heavy
def test_wrong_arguments_are_refused_before_the_first_batch_is_asked_for():
    pytest.importorskip("torch")
    for make in (shard_of(ROWS).iter_batches, shard_of(ROWS).iter_torch_batches):
        with pytest.raises(ValueError, match="batch_size"):
            make(batch_size=0)
        with pytest.raises(ValueError, match="local_shuffle_buffer_size"):
            make(local_shuffle_buffer_size=0)


@pytest.mark.heavy
def test_tensors_are_made_of_a_torch_dataset():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
    (inputs, labels), *rest = shard_of(dataset, 0, 2).iter_torch_batches(batch_size=2)
    assert inputs.tolist() == [0.0, 2.0]
    assert labels.dtype == torch.int64
    assert len(rest) == 1


@pytest.mark.heavy
def test_tensors_have_the_types_that_are_asked_for():
    torch = pytest.importorskip("torch")
    shard = shard_of(ROWS)
    (batch,) = shard.iter_torch_batches(dtypes={"x": torch.float32})
    assert batch["x"].dtype == torch.float32
    assert batch["y"].dtype == torch.int64
    (batch,) = shard.iter_torch_batches(dtypes=torch.float64, finalize_fn=lambda batch: batch["x"])
    assert batch.dtype == torch.float64


@pytest.mark.heavy
def test_text_cannot_be_a_tensor():
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="column 'name'"):
        list(shard_of([{"name": "a"}]).iter_torch_batches())


def test_what_is_no_dataset_is_refused():
    with pytest.raises(TypeError, match="a dataset must be"):
        shard_of(3)
    with pytest.raises(ValueError, match="equal lengths"):
        shard_of({"x": [1], "y": [1, 2]})
    with pytest.raises(ValueError, match="batch_size"):
        list(shard_of(ROWS).iter_batches(batch_size=0))
    with pytest.raises(ValueError, match="batch_format"):
        list(shard_of(ROWS).iter_batches(batch_format="arrow"))


def test_a_dataset_of_ray_data_splits_itself():
    class Dataset:
        def split(self, num_shards, *, equal):
            assert equal
            return [f"shard {number}" for number in range(num_shards)]

        def iter_torch_batches(self):
            raise AssertionError

    dataset = Dataset()
    assert shard_of(dataset, 1, 2) == "shard 1"
    assert shard_of(dataset) is dataset
