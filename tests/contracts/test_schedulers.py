"""Contract tests of the schedulers."""

import pytest

from schedulers import (
    PB2,
    ASHAScheduler,
    DistributeResources,
    DistributeResourcesToTopJob,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    MFPopulationBasedTraining,
    MOASHAScheduler,
    PASHAScheduler,
    PatientPopulationBasedTraining,
    Pause,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    Reason,
    ResourceChangingScheduler,
    Resume,
    Scheduler,
)
from searchers.space import loguniform
from tuner.testing.scheduler_contract import SchedulerContract

MUTATIONS = {"lr": loguniform(1e-4, 1.0), "depth": [1, 2, 3], "model": {"width": lambda: 8}}


class Contract(SchedulerContract):
    @pytest.mark.property
    def test_late_validations_lead_to_the_same_decisions(self):
        super().test_late_validations_lead_to_the_same_decisions()

    @pytest.mark.property
    def test_late_validations_survive_a_restore(self):
        super().test_late_validations_survive_a_restore()

    @pytest.mark.property
    def test_it_survives_faults(self):
        super().test_it_survives_faults()


class TestPBT(Contract):
    num_trials = 8

    def make_scheduler(self):
        return PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations=MUTATIONS
        )


class TestPBTByTimeAfterABurnIn(Contract):
    num_trials = 8

    def make_scheduler(self):
        return PopulationBasedTraining(
            perturbation_interval=25.0,
            burn_in_period=60.0,
            quantile_fraction=0.5,
            hyperparam_mutations=MUTATIONS,
            require_attrs=False,
        )


class TestPBTInGenerations(Contract):
    num_trials = 8

    def make_scheduler(self):
        return PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=4,
            hyperparam_mutations=MUTATIONS,
            synch=True,
        )


class TestPatientPBT(Contract):
    num_trials = 8

    def make_scheduler(self):
        return PatientPopulationBasedTraining(20, MUTATIONS, perturbation_interval=3)


class TestPatientPBTInGenerations(Contract):
    num_trials = 8

    def make_scheduler(self):
        return PatientPopulationBasedTraining(
            200, MUTATIONS, time_attr="time_total_s", perturbation_interval=20, synch=True
        )


class TestMFPBT(Contract):
    num_trials = 8

    def make_scheduler(self):
        return MFPopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            frequencies=(1, 3),
            hyperparam_mutations=MUTATIONS,
        )


class TestMFPBTInGenerations(Contract):
    def make_scheduler(self):
        return MFPopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=4,
            frequencies=(1, 2, 4),
            synch=True,
        )


@pytest.mark.property  # It fits models of scikit-learn.
class TestPB2(Contract):
    def make_scheduler(self):
        # A long interval: a model is fitted for every clone, and the contract plays many
        # experiments.
        return PB2(
            time_attr="training_iteration",
            perturbation_interval=9,
            hyperparam_bounds={"lr": [0.0, 1.0]},
            quantile_fraction=0.1,
        )


class TestReplay(Contract):
    num_trials = 1

    def make_scheduler(self):
        # What trials train with in experiments with faults is called x.
        first, second, third = dict(self.config), {"lr": 0.2, "x": 0.5}, {"lr": 0.4, "x": 0.7}
        return PopulationBasedTrainingReplay(
            [["0", "1", 6, 5, first, second], ["2", "0", 14, 12, second, third]]
        )


class TestFIFO(Contract):
    def make_scheduler(self):
        return FIFOScheduler()


class TestASHA(Contract):
    def make_scheduler(self):
        return ASHAScheduler(max_t=18, grace_period=2, reduction_factor=3, type="stopping")


class TestASHAInBracketsByTime(Contract):
    def make_scheduler(self):
        return ASHAScheduler(
            time_attr="time_total_s",
            max_t=150.0,
            grace_period=10,
            reduction_factor=2,
            brackets=3,
            stop_last_trials=False,
            type="stopping",
        )


class PausesEachTrialOnce(Scheduler):
    """Pauses each trial at its seventh result."""

    def __init__(self):
        self.resumed = set()

    def on_trial_result(self, trial, result):
        is_due = result.get("training_iteration") == 7 and trial.trial_id not in self.resumed
        return [Pause(trial.trial_id, Reason("test"))] if is_due else ()

    def on_idle(self, trials, num_free_slots):
        chosen = [trial.trial_id for trial in trials][:num_free_slots]
        self.resumed.update(chosen)
        return [Resume(trial_id, Reason("test")) for trial_id in chosen]

    def state_dict(self):
        return {"resumed": sorted(self.resumed)}

    def load_state_dict(self, state):
        self.resumed = set(state["resumed"])


class TestPausing(Contract):
    def make_scheduler(self):
        return PausesEachTrialOnce()


class TestPromotion(Contract):
    promotions = ("asha.promotion", "asha.last_resort")

    def make_scheduler(self):
        return ASHAScheduler(type="promotion", max_t=18, grace_period=2, reduction_factor=3)


class TestPromotionInBracketsByTime(Contract):
    def make_scheduler(self):
        return ASHAScheduler(
            "time_total_s",
            max_t=150.0,
            grace_period=10,
            reduction_factor=2,
            brackets=3,
            stop_last_trials=False,
            type="promotion",
        )


class TestStopping(Contract):
    def make_scheduler(self):
        return ASHAScheduler(type="stopping", max_t=18, reduction_factor=3, brackets=2)


class TestPASHA(Contract):
    promotions = ("pasha.promotion", "pasha.last_resort")

    def make_scheduler(self):
        return PASHAScheduler(max_t=16, reduction_factor=2)


class TestMOASHA(Contract):
    promotions = ("moasha.promotion", "moasha.last_resort")

    def make_scheduler(self):
        return MOASHAScheduler({"score": "max", "time_total_s": "min"}, max_t=18)


class TestMOASHAInBrackets(Contract):
    def make_scheduler(self):
        return MOASHAScheduler(
            {"score": "max", "time_total_s": "min"}, max_t=18, brackets=2, type="stopping"
        )


class TestHyperBand(Contract):
    def make_scheduler(self):
        return HyperBandScheduler(max_t=18, reduction_factor=3)


class TestHyperBandByTime(Contract):
    def make_scheduler(self):
        return HyperBandScheduler(
            time_attr="time_total_s", max_t=150.5, reduction_factor=2.5, stop_last_trials=False
        )


class TestMedianStopping(Contract):
    def make_scheduler(self):
        return MedianStoppingRule(grace_period=30.0, min_samples_required=2)


class TestMedianPausing(Contract):
    def make_scheduler(self):
        return MedianStoppingRule(
            time_attr="training_iteration",
            grace_period=2,
            min_samples_required=1,
            min_time_slice=5,
            hard_stop=False,
        )


class TestResourceChanging(Contract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            ASHAScheduler(max_t=18, grace_period=2, reduction_factor=3)
        )


class TestResourceChangingAroundHyperBand(Contract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            HyperBandScheduler(max_t=18), DistributeResources(add_bundles=True, increase_by_times=2)
        )


class TestResourceChangingForTheBest(Contract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            resources_allocation_function=DistributeResourcesToTopJob()
        )
