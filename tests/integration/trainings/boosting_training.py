"""Four rounds of boosting with XGBoost and with LightGBM."""

import lightgbm
import numpy as np
import xgboost

from tuner.integration import lightgbm as for_lightgbm
from tuner.integration import xgboost as for_xgboost

X = np.random.default_rng(0).random((64, 4))
Y = (X.sum(1) > 2).astype(int)


def train(config):
    if config["library"] == "xgboost":
        report = for_xgboost.TuneReportCheckpointCallback({"loss": "train-logloss"}, frequency=1)
        settings = {"objective": "binary:logistic", "nthread": 1, "learning_rate": config["lr"]}
        data = xgboost.DMatrix(X, Y)
        xgboost.train(
            settings,
            data,
            evals=[(data, "train")],
            callbacks=[report],
            verbose_eval=False,
            **for_xgboost.resume(4),
        )
    else:
        report = for_lightgbm.TuneReportCheckpointCallback(
            {"loss": "train-binary_logloss"}, frequency=1
        )
        settings = {
            "objective": "binary",
            "num_threads": 1,
            "verbosity": -1,
            "min_data_in_leaf": 2,
            "learning_rate": config["lr"],
        }
        data = lightgbm.Dataset(X, Y)
        lightgbm.train(
            settings,
            data,
            valid_sets=[data],
            valid_names=["train"],
            callbacks=[report],
            **for_lightgbm.resume(4),
        )
