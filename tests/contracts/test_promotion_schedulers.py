"""Contract tests of ASHA and its variants."""

from schedulers.halving.asha import ASHAScheduler
from schedulers.halving.moasha import MOASHAScheduler
from schedulers.halving.pasha import PASHAScheduler
from tuner.testing.scheduler_contract import SchedulerContract


class TestPromotion(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(type="promotion", max_t=18, grace_period=2, reduction_factor=3)


class TestPromotionInBracketsByTime(SchedulerContract):
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


class TestPromotionByCost(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(
            type="promotion", max_t=16, reduction_factor=2, cost_attr="time_total_s"
        )


class TestPromotionWithKnownGoodTrials(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(
            type="promotion", max_t=16, reduction_factor=2, num_threshold_candidates=2
        )


class TestStopping(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(
            type="stopping", max_t=18, reduction_factor=3, brackets=2, num_threshold_candidates=2
        )


class TestPASHA(SchedulerContract):
    def make_scheduler(self):
        return PASHAScheduler(max_t=16, reduction_factor=2)


class TestMOASHA(SchedulerContract):
    def make_scheduler(self):
        return MOASHAScheduler({"score": "max", "time_total_s": "min"}, max_t=18, brackets=2)
