"""Checkpoints that hold a PyTorch model."""

import pytest

from tuner.train import Checkpoint

pytestmark = pytest.mark.heavy
torch = pytest.importorskip("torch")

from tuner.train.torch import TorchCheckpoint  # noqa: E402  (needs torch)


def test_weights_are_loaded_into_a_model_of_the_same_shape():
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    saved = TorchCheckpoint.from_state_dict(model.state_dict())
    assert torch.equal(saved.get_model(other).weight, model.weight)
    with pytest.raises(ValueError, match="model must be given"):
        saved.get_model()


def test_weights_of_a_wrapped_model_have_the_names_of_the_model():
    model = torch.nn.Linear(2, 1)
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    loaded = TorchCheckpoint.from_state_dict(wrapped).get_model(torch.nn.Linear(2, 1))
    assert torch.equal(loaded.weight, model.weight)


def test_a_whole_model_needs_no_other_and_any_checkpoint_can_be_read_as_one():
    model = torch.nn.Linear(2, 1)
    plain = Checkpoint(TorchCheckpoint.from_model(model).path)
    assert torch.equal(TorchCheckpoint.from_checkpoint(plain).get_model().weight, model.weight)
