"""Contract tests of HyperBand, the median stopping rule and resource-changing schedulers."""

from schedulers import ASHAScheduler
from schedulers.halving.hyperband import HyperBandScheduler
from schedulers.median import MedianStoppingRule
from schedulers.resource_changing import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
)
from tuner.testing.scheduler_contract import SchedulerContract


class TestHyperBand(SchedulerContract):
    def make_scheduler(self):
        return HyperBandScheduler(max_t=18, reduction_factor=3)


class TestHyperBandByTime(SchedulerContract):
    def make_scheduler(self):
        return HyperBandScheduler(
            time_attr="time_total_s", max_t=150.5, reduction_factor=2.5, stop_last_trials=False
        )


class TestMedianStopping(SchedulerContract):
    def make_scheduler(self):
        return MedianStoppingRule(grace_period=30.0, min_samples_required=2)


class TestMedianPausing(SchedulerContract):
    def make_scheduler(self):
        return MedianStoppingRule(
            time_attr="training_iteration",
            grace_period=2,
            min_samples_required=1,
            min_time_slice=5,
            hard_stop=False,
        )


class TestResourceChanging(SchedulerContract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            ASHAScheduler(max_t=18, grace_period=2, reduction_factor=3)
        )


class TestResourceChangingAroundHyperBand(SchedulerContract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            HyperBandScheduler(max_t=18), DistributeResources(add_bundles=True, increase_by_times=2)
        )


class TestResourceChangingForTheBest(SchedulerContract):
    def make_scheduler(self):
        return ResourceChangingScheduler(
            resources_allocation_function=DistributeResourcesToTopJob()
        )
