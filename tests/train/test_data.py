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


def test_tensors_are_made_of_a_torch_dataset():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
    (inputs, labels), *rest = shard_of(dataset, 0, 2).iter_torch_batches(batch_size=2)
    assert inputs.tolist() == [0.0, 2.0]
    assert labels.dtype == torch.int64
    assert len(rest) == 1


def test_tensors_have_the_types_that_are_asked_for():
    torch = pytest.importorskip("torch")
    shard = shard_of(ROWS)
    (batch,) = shard.iter_torch_batches(dtypes={"x": torch.float32})
    assert batch["x"].dtype == torch.float32
    assert batch["y"].dtype == torch.int64
    (batch,) = shard.iter_torch_batches(dtypes=torch.float64, finalize_fn=lambda batch: batch["x"])
    assert batch.dtype == torch.float64


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
