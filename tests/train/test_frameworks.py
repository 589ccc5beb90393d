"""Lightning, Transformers and Accelerate in two workers, without changes to their code."""

from functools import partial
from pathlib import Path

import pytest

from tuner import train

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")

from tuner.train.torch import TorchConfig, TorchTrainer  # noqa: E402  (needs torch)


class Preloading(TorchConfig):
    """Has frameworks loaded once, before the first workers are forked, rather than in each."""

    preloaded_modules = (
        *TorchConfig.preloaded_modules,
        "accelerate",
        "lightning.pytorch",
        "transformers.trainer",
    )


@pytest.fixture
def trainer(trainer):
    """Return a function that makes a `TorchTrainer` of two workers."""
    return partial(trainer, kind=TorchTrainer, torch_config=Preloading())


def lightning_loop(config):
    import lightning.pytorch as pl  # noqa: PLC0415  (slow to import)

    from tuner.train import lightning  # noqa: PLC0415

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            loss = self.layer(batch[0]).square().mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    own = {
        "strategy": lightning.RayDDPStrategy(),
        "plugins": [lightning.RayLightningEnvironment()],
        "devices": "auto",
    }
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        accelerator="cpu",
        callbacks=[lightning.RayTrainReportCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"strategy": "ddp", "devices": 2} if config["is_stock"] else own),
    )
    lightning.prepare_trainer(trainer)
    checkpoint = train.get_checkpoint()
    path = checkpoint and Path(checkpoint.path, lightning.RayTrainReportCallback.CHECKPOINT_NAME)
    data = torch.utils.data.TensorDataset(torch.ones(16, 2))
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=path)
    return {"size": trainer.world_size, "steps": trainer.global_step}


def test_lightning_trains_in_two_workers_without_changes(trainer):
    pytest.importorskip("lightning")
    result = trainer(lightning_loop, {"is_stock": True, "epochs": 1}).fit()
    assert result.return_value == {"size": 2, "steps": 2}


def test_lightning_continues_with_the_strategy_for_workers(trainer):
    pytest.importorskip("lightning")
    given = {"is_stock": False, "epochs": 2}
    result = trainer(lightning_loop, given).fit()
    assert result.return_value == {"size": 2, "steps": 4}
    assert {"loss", "epoch", "step"} <= result.metrics.keys()
    assert Path(result.checkpoint.path, "checkpoint.ckpt").is_file()
    given["epochs"] = 3
    again = trainer(lightning_loop, given).fit()
    assert again.return_value["steps"] == 6
    assert again.metrics_dataframe["epoch"].tolist() == [0, 1, 2]


def transformers_loop(config):
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415  (slow to import)

    from tuner.train.huggingface.transformers import (  # noqa: PLC0415
        RayTrainReportCallback,
        prepare_trainer,
    )

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, inputs, labels):
            made = self.layer(inputs).squeeze(-1)
            return {"loss": (made - labels).square().mean(), "logits": made}

    rows = [{"inputs": torch.ones(2), "labels": torch.tensor(1.0)}] * 16
    arguments = TrainingArguments(
        output_dir=f"{train.get_context().get_trial_dir()}/trainer",
        num_train_epochs=config["epochs"],
        per_device_train_batch_size=4,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(Net(), arguments, train_dataset=rows, eval_dataset=rows)
    trainer.add_callback(RayTrainReportCallback())
    trainer = prepare_trainer(trainer)
    checkpoint = train.get_checkpoint()
    trainer.train(resume_from_checkpoint=checkpoint and f"{checkpoint.path}/checkpoint")
    return {"size": trainer.args.world_size, "steps": trainer.state.global_step}


def test_transformers_train_in_two_workers_and_continue(trainer):
    pytest.importorskip("transformers")
    result = trainer(transformers_loop, {"epochs": 2}).fit()
    assert result.return_value == {"size": 2, "steps": 4}
    assert result.metrics["eval_loss"] >= 0
    assert Path(result.checkpoint.path, "checkpoint", "trainer_state.json").exists()
    again = trainer(transformers_loop, {"epochs": 3}).fit()
    assert again.return_value["steps"] == 6


def test_a_trainer_of_transformers_takes_shards_as_batches():
    pytest.importorskip("transformers")
    from tuner.train.data import shard_of  # noqa: PLC0415  (slow to import)
    from tuner.train.huggingface.transformers import prepare_trainer  # noqa: PLC0415

    class Ordinary:
        train_dataset, eval_dataset = shard_of([{"x": 1}, {"x": 2}]), iter([{"x": 3}])

        def get_train_dataloader(self):
            raise AssertionError

        def get_eval_dataloader(self, eval_dataset=None):
            return f"loader of {eval_dataset}"

    prepared = prepare_trainer(Ordinary())
    assert list(prepared.get_train_dataloader()) == [{"x": 1}, {"x": 2}]
    assert list(prepared.get_eval_dataloader()) == [{"x": 3}]
    assert prepared.get_eval_dataloader([1, 2]) == "loader of [1, 2]"
    batches = shard_of([{"x": number} for number in range(5)]).iter_torch_batches(batch_size=2)
    loader = prepared.get_eval_dataloader(batches)
    assert [len(loader), len(list(loader)), len(list(loader))] == [3, 3, 3]


def accelerate_loop(config):
    from accelerate import Accelerator  # noqa: PLC0415  (slow to import)

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(16, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (batch,) in loader:
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    train.report({"loss": loss.item(), "batches": len(loader), "size": accelerator.num_processes})


def test_accelerate_trains_in_two_workers(trainer):
    pytest.importorskip("accelerate")
    metrics = trainer(accelerate_loop).fit().metrics
    assert (metrics["size"], metrics["batches"]) == (2, 2)


def test_a_callback_of_the_integrations_reports_from_all_workers(trainer):
    pytest.importorskip("lightning")

    def loop(config):
        import lightning.pytorch as pl  # noqa: PLC0415

        from tuner.integration.pytorch_lightning import (  # noqa: PLC0415
            TuneReportCheckpointCallback,
        )

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def training_step(self, batch, index):
                loss = self.layer(batch[0]).square().mean()
                self.log("loss", loss, sync_dist=True)
                return loss

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            callbacks=[TuneReportCheckpointCallback(on="train_epoch_end")],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        data = torch.utils.data.TensorDataset(torch.ones(16, 2))
        trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=4))

    result = trainer(loop).fit()
    assert len(result.metrics_dataframe) == 2
    assert Path(result.checkpoint.path, "checkpoint.ckpt").is_file()
