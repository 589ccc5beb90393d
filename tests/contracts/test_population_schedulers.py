"""Contract tests of the population-based schedulers and their replay."""

from schedulers.population.mf_pbt import MFPopulationBasedTraining
from schedulers.population.pb2 import PB2
from schedulers.population.pbt import PopulationBasedTraining
from schedulers.population.replay import PopulationBasedTrainingReplay
from searchers.space import loguniform
from tuner.testing.scheduler_contract import SchedulerContract

MUTATIONS = {"lr": loguniform(1e-4, 1.0), "depth": [1, 2, 3], "model": {"width": lambda: 8}}


class TestPBT(SchedulerContract):
    def make_scheduler(self):
        return PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations=MUTATIONS
        )


class TestPBTByTimeAfterABurnIn(SchedulerContract):
    def make_scheduler(self):
        return PopulationBasedTraining(
            perturbation_interval=25.0,
            burn_in_period=60.0,
            quantile_fraction=0.5,
            hyperparam_mutations=MUTATIONS,
            require_attrs=False,
        )


class TestPBTInGenerations(SchedulerContract):
    def make_scheduler(self):
        return PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=4,
            hyperparam_mutations=MUTATIONS,
            synch=True,
        )


class TestMFPBT(SchedulerContract):
    def make_scheduler(self):
        return MFPopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            frequencies=(1, 3),
            hyperparam_mutations=MUTATIONS,
        )


class TestMFPBTInGenerations(SchedulerContract):
    def make_scheduler(self):
        return MFPopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            frequencies=(1, 2, 4),
            synch=True,
        )


class TestPB2(SchedulerContract):
    def make_scheduler(self):
        # A long interval: a model is fitted for every clone, and the contract plays many
        # experiments.
        return PB2(
            time_attr="training_iteration",
            perturbation_interval=9,
            hyperparam_bounds={"lr": [0.0, 1.0]},
            quantile_fraction=0.1,
        )


class TestReplay(SchedulerContract):
    num_trials = 1

    def make_scheduler(self):
        # What trials train with in experiments with faults is called x.
        first, second, third = dict(self.config), {"lr": 0.2, "x": 0.5}, {"lr": 0.4, "x": 0.7}
        return PopulationBasedTrainingReplay(
            [["0", "1", 6, 5, first, second], ["2", "0", 14, 12, second, third]]
        )
