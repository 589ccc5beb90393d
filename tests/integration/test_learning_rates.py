"""Learning rates and their schedules are scaled together."""

import pytest

from tuner.integration import learning_rates

pytestmark = pytest.mark.process  # imports torch


def test_rates_and_schedules_are_scaled_together():
    import torch  # noqa: PLC0415

    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD(
        [{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.2}]
    )
    parts = [
        torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 10),
        torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    ]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[1])
    assert learning_rates.configured([optimizer]) == [[0.1, 0.2]]
    learning_rates.rescale([optimizer], [schedule], [[10.0, 1.0]])
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1.0, 0.2])
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.5, 0.1])
