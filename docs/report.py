"""Take the picture of a report in ``docs/report.png``.

Run ``python docs/report.py``, with the extra ``examples`` and Chromium installed. The experiment is
the first example of the README, with ASHA.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import tuner as tune  # noqa: E402  (of this clone)
from tests.analysis.browser import Browser  # noqa: E402  (likewise)

PICTURE = Path(__file__).with_suffix(".png")
SIZE = {"width": 1300, "height": 1960}
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def train(config: dict[str, float]) -> None:
    """Train a linear classifier of digits."""
    x, x_val, y, y_val = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = SGDClassifier(
        learning_rate="constant", eta0=config["lr"], alpha=config["alpha"], random_state=0
    )
    for _ in range(27):
        model.partial_fit(x, y, classes=range(10))
        tune.report({"accuracy": model.score(x_val, y_val)})


def report(folder: Path) -> Path:
    """Run the experiment in a folder, and return its report."""
    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.loguniform(1e-5, 1.0), "alpha": tune.loguniform(1e-6, 1e-1)},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=50,
            scheduler=tune.schedulers.ASHAScheduler(max_t=27),
            seed=0,
        ),
        run_config=tune.RunConfig(name="digits", storage_path=folder / "tuner_results", verbose=0),
    )
    page = tuner.fit().report(folder / "report.html")
    page.write_text(page.read_text().replace(str(folder), "/home/you"))
    return page


def photographed(page: Path, program: str, profile: Path) -> bytes:
    """Return a picture of the upper part of a page."""
    with Browser(program, profile) as browser:  # type: ignore[no-untyped-call]
        browser.open(page.as_uri())
        browser.resize(SIZE["width"], 900)
        # Charts follow the window a little later.
        gap = "Math.abs(chart.offsetWidth - chart.querySelector('svg').width.baseVal.value)"
        browser.comes(f"[...document.querySelectorAll('.chart')].every(chart => {gap} <= 1)")
        picture = browser.ask(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "scale": 1, **SIZE},
        )
    return base64.b64decode(picture["data"])


def main() -> None:
    """Take the picture."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        sys.exit(f"none of {', '.join(_PROGRAMS)} was found; install Chromium")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profile").mkdir()
        PICTURE.write_bytes(photographed(report(folder), program, folder / "profile"))


if __name__ == "__main__":
    main()
