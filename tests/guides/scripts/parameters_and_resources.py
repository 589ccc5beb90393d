"""Large arguments, resource requests and registered names."""

import sys

import tuner as tune
from tuner import RunConfig, Trainable


def train_func(config, data, offset=0):
    tune.report(
        {
            "score": sum(data) * config["scale"] + offset,
            "cpus": tune.get_context().get_trial_resources()["cpu"],
        }
    )


class Sum(Trainable):
    def setup(self, config, data):
        self.score = sum(data) * config["scale"]

    def step(self):
        return {"score": self.score, "cpus": self.trial_resources["cpu"], "done": True}


def fit(trainable, name):
    results = tune.Tuner(
        trainable,
        param_space={"scale": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="score", mode="max"),
        run_config=RunConfig(name=name, storage_path=sys.argv[1], resources={"cpu": 4}, verbose=0),
    ).fit()
    best = results.get_best_result()
    print(name, best.metrics["score"], best.metrics["cpus"], best.config["scale"])


if __name__ == "__main__":
    data = list(range(1000))
    with_data = tune.with_parameters(train_func, data=data, offset=5)
    fit(with_data, "parameters")
    fit(tune.with_resources(with_data, {"cpu": 2}), "resources")
    fit(
        tune.with_resources(with_data, lambda config: {"cpu": config["scale"] * 1.5}),
        "resources_by_config",
    )
    fit(
        tune.with_resources(with_data, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}])),
        "bundles",
    )
    fit(tune.with_parameters(tune.with_resources(Sum, {"cpu": 3}), data=data), "class")
    tune.register_trainable("the_sum", with_data)
    fit("the_sum", "registered")
