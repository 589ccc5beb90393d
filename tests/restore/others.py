"""Schedulers that make trials save, pause, clone each other and change their size, in `OTHERS`."""

import json
from pathlib import Path

import tuner as tune
from schedulers import (
    PB2,
    ASHAScheduler,
    DistributeResourcesToTopJob,
    HyperBandScheduler,
    MedianStoppingRule,
    MFPopulationBasedTraining,
    MOASHAScheduler,
    PASHAScheduler,
    PatientPopulationBasedTraining,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)

MUTATIONS = {"x": tune.uniform(0.0, 1.0), "layers": [1, 2, 3]}
REPLAYED = [
    ["0", "1", 2, 2, {"x": 0.3, "layers": 1}, {"x": 0.4, "layers": 1}],
    ["2", "0", 4, 4, {"x": 0.4, "layers": 1}, {"x": 0.4, "layers": 3}],
]
OTHERS = {
    "moasha": lambda: MOASHAScheduler(
        {"loss": "min", "size": "max"}, max_t=6, reduction_factor=2, type="stopping"
    ),
    "moasha, promotion": lambda: MOASHAScheduler(
        {"loss": "min", "size": "max"}, max_t=6, reduction_factor=2, type="promotion"
    ),
    "median": lambda: MedianStoppingRule(
        "training_iteration", grace_period=1, min_samples_required=1
    ),
    "promotion": lambda: ASHAScheduler(max_t=6, reduction_factor=2, type="promotion"),
    "promotion, brackets": lambda: ASHAScheduler(
        max_t=6, reduction_factor=2, brackets=2, type="promotion"
    ),
    "auto": lambda: ASHAScheduler(max_t=6, reduction_factor=2),
    "pasha": lambda: PASHAScheduler(max_t=6, reduction_factor=2),
    "hyperband": lambda: HyperBandScheduler(max_t=6, reduction_factor=2),
    "median, pausing": lambda: MedianStoppingRule(
        "training_iteration", grace_period=1, min_samples_required=1, hard_stop=False
    ),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations=MUTATIONS
    ),
    "pbt, generations": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations=MUTATIONS, synch=True
    ),
    "patient-pbt": lambda: PatientPopulationBasedTraining(6, MUTATIONS),
    "mf-pbt": lambda: MFPopulationBasedTraining(
        "training_iteration",
        perturbation_interval=1,
        hyperparam_mutations=MUTATIONS,
        frequencies=(1, 2),
    ),
    "pb2": lambda: PB2(
        "training_iteration", perturbation_interval=4, hyperparam_bounds={"x": [0.0, 1.0]}
    ),
    "replay": lambda: PopulationBasedTrainingReplay(REPLAYED),
    "resizing": lambda: ResourceChangingScheduler(
        ASHAScheduler(max_t=6, reduction_factor=2), DistributeResourcesToTopJob()
    ),
}


class Learner(tune.Trainable):
    """Trains for six iterations, fails now and then, and saves when it is asked to."""

    def setup(self, config):
        self.num_steps, self.loss = 0, 10.0

    def step(self):
        self.num_steps += 1
        if 0.45 < self.config["x"] < 0.55 and self.num_steps == 3:
            raise RuntimeError("it diverged")
        self.loss = 0.5 * self.loss + self.config["x"] + self.config["layers"]
        return {
            "loss": self.loss,
            "size": self.num_steps * self.config["layers"],
            "done": self.num_steps == 6,
        }

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "state.json").write_text(
            json.dumps([self.num_steps, self.loss]), encoding="utf-8"
        )

    def load_checkpoint(self, checkpoint_dir):
        self.num_steps, self.loss = json.loads(
            Path(checkpoint_dir, "state.json").read_text(encoding="utf-8")
        )
