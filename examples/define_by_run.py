"""Search a space that is a function: the classifier chosen determines which parameters exist.

Run it with ``python examples/define_by_run.py``; it takes some seconds and downloads nothing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import tuner as tune
from searchers import OptunaSearch

if TYPE_CHECKING:
    import optuna


def define(trial: optuna.Trial) -> dict[str, Any]:
    """Suggest the parameters of one classifier, and return constants.

    Names with ``/`` become nested dictionaries.
    """
    match trial.suggest_categorical("kind", ["svm", "neighbours", "logistic"]):
        case "svm":
            trial.suggest_float("svm/C", 1e-3, 1e3, log=True)
            if trial.suggest_categorical("svm/kernel", ["rbf", "poly"]) == "poly":
                trial.suggest_int("svm/degree", 2, 5)
        case "neighbours":
            trial.suggest_int("neighbours/n_neighbors", 1, 30)
        case "logistic":
            trial.suggest_float("logistic/C", 1e-4, 1e2, log=True)
    return {"folds": 5}


def train(config: dict[str, Any]) -> None:
    """Report the mean accuracy over folds (higher is better)."""
    makers = {"svm": SVC, "neighbours": KNeighborsClassifier, "logistic": LogisticRegression}
    model = make_pipeline(StandardScaler(), makers[config["kind"]](**config[config["kind"]]))
    tune.report(
        {"accuracy": cross_val_score(model, *load_wine(return_X_y=True), cv=config["folds"]).mean()}
    )


def main(options: argparse.Namespace) -> None:
    """Search, and print the best configuration and how often each classifier was tried."""
    tuner = tune.Tuner(
        train,
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            search_alg=OptunaSearch(define),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path),
    )
    results = tuner.fit()
    best = results.get_best_result()
    kinds = [result.config["kind"] for result in results]
    print("\nTried:", ", ".join(f"{kind} {kinds.count(kind)} times" for kind in sorted(set(kinds))))
    print(f"Best accuracy: {best.metrics['accuracy']:.3f}")
    print("Best configuration:", best.config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=30, help="how many configurations to try")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the choice of configurations follows from"
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    main(parser.parse_args())
