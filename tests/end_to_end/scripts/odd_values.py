"""Reports every kind of value there is; the driver's process never imports torch.

Usage: ``python odd_values.py <storage> <executor>``; prints the last line's digest of what was
stored as JSON.
"""

import json
import sys
import threading
import warnings

import numpy as np

import tuner as tune
from tuner.storage import strict_json


class Silent:
    def __repr__(self):
        raise RuntimeError


def values():
    import torch

    weights = torch.arange(3.0, requires_grad=True)
    return {
        "python": {
            "int": 1,
            "float": 0.5,
            "bool": True,
            "text": "ü",
            "none": None,
            "list": [1, [2.5, None]],
            "dict": {"deep": {"er": 1}},
        },
        "not_finite": {
            "nan": float("nan"),
            "inf": float("inf"),
            "minus": -np.inf,
            "tensor": torch.tensor(float("nan")),
        },
        "scalars": {
            "f32": np.float32(0.5),
            "i8": np.int8(-3),
            "bool": np.bool_(True),
            "0d": np.array(2.5),
            "one": np.array([[7]]),
        },
        "torch": {
            "grad": weights.sum() * 2,
            "one": torch.tensor([3]),
            "bf16": torch.ones(1, dtype=torch.bfloat16),
            "few": weights,
        },
        "arrays": {
            "few": np.arange(4).reshape(2, 2),
            "many": np.arange(65.0),
            "tensor": torch.arange(100).reshape(4, 25),
        },
        "others": {
            "set": {1},
            "bytes": b"b" * 500,
            "complex": 1j,
            "object": Silent(),
            "lambda": lambda: 1,
            "big": 2**63,
            "bigger": -(10**400),
        },
        "keys": {1: 1, (2, 3): 2, None: 3, 0.5: 4},
    }


def report_from_thread(metrics):
    thread = threading.Thread(target=tune.report, args=(metrics,))
    thread.start()
    thread.join()


def train(config):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for name, value in values().items():
                report_from_thread({name: value}) if name == "python" else tune.report(
                    {name: value}
                )
    found = [str(warning.message) for warning in caught]
    tune.report({"warned": sorted(text.split("'")[1] for text in found)})


def main(storage, executor):
    run_config = tune.RunConfig(name="exp", storage_path=storage, verbose=0, executor=executor)
    (result,) = tune.Tuner(train, run_config=run_config).fit()
    rows = [
        row for _, row in zip(range(20), result.metrics_dataframe.to_dict("records"), strict=False)
    ]
    restored = tune.Tuner.restore(f"{storage}/exp", train, run_config=run_config).get_results()[0]
    found = {
        "status": str(result.status),
        "num_rows": len(rows),
        "has_torch": "torch" in sys.modules,
        "warned": result.metrics["warned"],
        "restored_alike": strict_json.dumps(restored.metrics) == strict_json.dumps(result.metrics),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
