"""Every name that users can import stays where it is."""

import importlib
import subprocess
import sys

import pytest

NAMES = {
    "tuner": """
        CLIReporter CSVLoggerCallback Callback Checkpoint CheckpointConfig Cluster
        CombinedStopper DaskCluster Experiment ExperimentAnalysis ExperimentPlateauStopper
        FailureConfig FunctionStopper Handle JsonLoggerCallback JupyterNotebookReporter
        LoggerCallback MaximumIterationStopper NoopStopper PlacementGroupFactory
        ProgressReporter RayCluster Result ResultGrid ResumeConfig RunConfig Secret Stopper
        TBXLoggerCallback TimeoutStopper Trainable Trial TrialPlateauStopper TuneConfig
        TuneContext TuneError Tuner TunerError WhatIf WhatIfComparison attach
        checkpoint_dir choice create_scheduler create_searcher get_checkpoint
        get_context grid_search lograndint loguniform only_if points_from qlograndint
        qloguniform qrandint qrandn quniform randint randn register_trainable report
        rerun run run_experiments sample_from uniform what_if with_parameters
        with_resources
    """,
    "schedulers": """
        ASHAScheduler AsyncHyperBandScheduler Decision DistributeResources
        DistributeResourcesToTopJob ExperimentView Exploit FIFOScheduler
        HyperBandForBOHB HyperBandScheduler MFPopulationBasedTraining MOASHAScheduler
        MedianStoppingRule PASHAScheduler PB2 PatientPopulationBasedTraining Pause
        PopulationBasedTraining PopulationBasedTrainingReplay Reason Resize ResourceAllocation
        ResourceChangingScheduler Resume Save Scheduler Stop TrialScheduler TrialView
        create_scheduler
    """,
    "searchers": """
        AutoSearch AxSearch BOHBSearch BasicVariantGenerator BayesOptSearch CQRSearch
        ConcurrencyLimiter DuplicateGuard HyperOptSearch NevergradSearch OptunaSearch
        Repeater Searcher TreeSearch create_searcher
    """,
    "searchers.space": """
        Branching Categorical Condition Conditional ConfigView Domain Float Integer
        Normal OnlyIf Parameter Path SampleFrom SearchSpace assign choice constants
        copied domains every_leaf experiment_tag flat_name grid_axes grid_search is_grid
        is_word leaves lograndint loguniform match merge nest only_if qlograndint
        qloguniform qrandint qrandn quniform randint randn resolve sample_from uniform
    """,
    "tuner.testing": """
        CallbackContract CrashCheck CrashCheckFailed Rehearsal RehearsedTrial SchedulerContract
        SearcherContract Simulation StopperContract simulate simulate_with_faults
    """,
    "tuner.callback": """
        Callback
    """,
    "tuner.error": """
        TuneError
    """,
    "tuner.errors": """
        CannotPause CheckpointError ClusterError DamagedJournal ExperimentExists
        ExperimentFenced
        ExperimentLocked
        InvalidDecision InvalidTransition LeaseRefused MetricNotReported NotGranted
        NotRunning ResourceDeadlock
        StorageError StorageLost StorageUnreachable TrainableNotPicklable TrialFailed TunerError
    """,
    "tuner.experiment": """
        Experiment Trial
    """,
    "tuner.logger": """
        CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback
    """,
    "tuner.result": """
        CHECKPOINT_DIR_NAME CONFIG DATE DEFAULT_METRIC DONE EPISODES_THIS_ITER
        EPISODES_TOTAL EXPERIMENT_TAG HOSTNAME ITERATIONS_SINCE_RESTORE NODE_IP PID
        SHOULD_CHECKPOINT TIMESTAMP TIMESTEPS_THIS_ITER TIMESTEPS_TOTAL
        TIME_SINCE_RESTORE TIME_THIS_ITER_S TIME_TOTAL_S TRAINING_ITERATION TRIAL_ID
    """,
    "tuner.schedulers": """
        ASHAScheduler AsyncHyperBandScheduler Decision DistributeResources
        DistributeResourcesToTopJob ExperimentView Exploit FIFOScheduler
        HyperBandForBOHB HyperBandScheduler MFPopulationBasedTraining MOASHAScheduler
        MedianStoppingRule PASHAScheduler PB2 PatientPopulationBasedTraining Pause
        PopulationBasedTraining PopulationBasedTrainingReplay Reason Resize ResourceAllocation
        ResourceChangingScheduler Resume Save Scheduler Stop TrialScheduler TrialView
        create_scheduler
    """,
    "tuner.search": """
        AutoSearch AxSearch BOHBSearch BasicVariantGenerator BayesOptSearch CQRSearch
        ConcurrencyLimiter DuplicateGuard HyperOptSearch NevergradSearch OptunaSearch
        Repeater Searcher TreeSearch create_searcher
    """,
    "tuner.train": """
        BackendConfig Checkpoint CheckpointConfig CheckpointConsistencyMode CheckpointEvery
        CheckpointUploadMode ControllerError DataConfig DataParallelTrainer DataShard
        FailureConfig LoggingConfig PreemptionError PreemptionInfo ReportedCheckpoint
        ReportedCheckpointStatus Result RunConfig ScalingConfig TrainContext
        TrainRunContext TrainingFailedError TuneReportCallback UserCallback
        ValidationConfig ValidationTaskConfig WorkerGroupError checkpoint_dir
        get_all_reported_checkpoints get_checkpoint get_context get_dataset_shard
        get_preemption_info report
    """,
    "tuner.integration.ray_train": """
        TuneReportCallback
    """,
    "tuner.train.lightning": """
        RayDDPStrategy RayDeepSpeedStrategy RayFSDPStrategy RayLightningEnvironment
        RayTrainReportCallback prepare_trainer
    """,
    "tuner.train.huggingface.transformers": """
        RayTrainReportCallback prepare_trainer
    """,
    "tuner.train.tensorflow": """
        TensorflowConfig TensorflowTrainer prepare_dataset_shard
    """,
    "tuner.train.collective": """
        barrier broadcast_from_rank_zero
    """,
    "tuner.train.torch": """
        TorchConfig TorchTrainer enable_reproducibility get_device get_devices
        prepare_data_loader prepare_model unwrap_model
    """,
    "tuner.stopper": """
        CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper
        NoopStopper Stopper TimeoutStopper TrialPlateauStopper
    """,
    "tuner.utils": """
        flatten_dict validate_save_restore
    """,
    "tuner.analysis": """
        ExperimentAnalysis Result ResultGrid points_from
    """,
    "tuner.search.ax": """
        AxSearch
    """,
    "tuner.search.basic_variant": """
        BasicVariantGenerator
    """,
    "tuner.search.bayesopt": """
        BayesOptSearch
    """,
    "tuner.search.bohb": """
        BOHBSearch
    """,
    "tuner.search.concurrency_limiter": """
        ConcurrencyLimiter
    """,
    "tuner.search.hyperopt": """
        HyperOptSearch
    """,
    "tuner.search.nevergrad": """
        NevergradSearch
    """,
    "tuner.search.optuna": """
        OptunaSearch
    """,
    "tuner.search.repeater": """
        Repeater
    """,
    "tuner.integration.comet": """
        CometLoggerCallback
    """,
    "tuner.integration.lightgbm": """
        TuneReportCallback TuneReportCheckpointCallback resume
    """,
    "tuner.integration.mlflow": """
        MLflowLoggerCallback setup_mlflow
    """,
    "tuner.integration.pytorch_lightning": """
        TuneReportCallback TuneReportCheckpointCallback resume
    """,
    "tuner.integration.sklearn": """
        TunerSearchCV cross_validate_and_report fit_and_report get_model
    """,
    "tuner.integration.transformers": """
        TuneReportCallback TuneReportCheckpointCallback resume
    """,
    "tuner.integration.wandb": """
        WandbLoggerCallback setup_wandb
    """,
    "tuner.integration.xgboost": """
        TuneReportCallback TuneReportCheckpointCallback resume
    """,
}
"""By module; those of Ray Tune's import paths among them."""
NEEDING_LIBRARIES = {
    f"tuner.{name}"
    for name in (
        "integration.lightgbm",
        "integration.sklearn",
        "integration.transformers",
        "integration.xgboost",
        "train.huggingface.transformers",
    )
}


def missing(modules):
    return [
        f"{module}.{name}"
        for module in modules
        for name in NAMES[module].split()
        if not hasattr(importlib.import_module(module), name)
    ]


def test_a_name_that_could_be_imported_still_can():
    assert missing(NAMES.keys() - NEEDING_LIBRARIES) == []


@pytest.mark.heavy
def test_so_can_those_that_need_their_libraries():
    assert missing(NEEDING_LIBRARIES) == []


@pytest.mark.parametrize("name", ["schedulers", "searchers", "searchers.space", "tuner.train"])
def test_dir_shows_public_names_only(name):
    module = importlib.import_module(name)
    shown = {name for name in dir(module) if not name.startswith("__")}
    assert shown == set(module.__all__)


@pytest.mark.process
def test_dir_of_tuner_shows_public_names_only():
    # In a process of its own: what was imported before would be shown.
    code = "import tuner, tuner.tuner; print(*(n for n in dir(tuner) if n not in tuner.__all__))"
    shown = subprocess.run(  # noqa: S603  (this interpreter)
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    others = [name for name in shown.stdout.split() if not name.startswith("__")]
    assert others == [
        *["callback", "error", "experiment", "logger", "result", "schedulers", "search", "stopper"],
        *["train", "utils"],
    ]
