"""Contract tests of the stoppers."""

from tuner.core.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    MetricThresholdStopper,
    NoopStopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from tuner.testing.stopper_contract import StopperContract


class TestNoop(StopperContract):
    def make_stopper(self):
        return NoopStopper()


class TestMetricThreshold(StopperContract):
    def make_stopper(self):
        return MetricThresholdStopper({"val/loss": "<= 0.01", "training_iteration": 10})


class TestMaximumIteration(StopperContract):
    def make_stopper(self):
        return MaximumIterationStopper(5)


class TestTrialPlateau(StopperContract):
    def make_stopper(self):
        return TrialPlateauStopper(
            "val/loss", std=0.01, num_results=3, metric_threshold=0.5, mode="min"
        )


class TestExperimentPlateau(StopperContract):
    def make_stopper(self):
        return ExperimentPlateauStopper("loss", std=0.01, top=3, patience=2)


class TestTimeout(StopperContract):
    def make_stopper(self):
        return TimeoutStopper(20)


class TestFunction(StopperContract):
    def make_stopper(self):
        return FunctionStopper(
            lambda trial_id, result: (
                trial_id == "t00001" and result.get("training_iteration", 0) > 3
            )
        )


class TestCombined(StopperContract):
    def make_stopper(self):
        return CombinedStopper(
            MaximumIterationStopper(8), TimeoutStopper(15), TrialPlateauStopper("loss")
        )
