"""The code on the documentation pages runs and prints what the pages show."""

import doctest
import functools
import re
from pathlib import Path

import pytest

from tests.interpreter import run_python
from tests.pages import PROGRAMS, code_of

HEAVY_PAGES = {
    "docs/frameworks.md": "LightGBM",
    "docs/storage.md": "s3fs",
    "docs/trackers.md": "MLflow",
    "docs/training.md": "groups of processes with PyTorch",
    "docs/validation.md": "groups of processes with PyTorch",
}
"""Pages whose code imports a large library, or PyTorch many times."""
TORCH_PAGES = {"docs/training.md", "docs/validation.md"}
MAX_TRIALS = {
    "README.md": 6,
    "docs/index.md": 4,
    "docs/schedulers.md": 6,
}
"""How many trials an experiment of a page runs here; readers see more, which takes longer."""
MARK = "---- block {} of {}"


def _with_fewer_trials(code, limit):
    if limit is None:
        return code
    fewer, num_found = re.subn(
        r"num_samples=(\d+)", lambda found: f"num_samples={min(int(found[1]), limit)}", code
    )
    assert num_found
    return fewer


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.heavy] if page in HEAVY_PAGES else [])
        for page in PROGRAMS
    ],
)
def test_code_on_the_pages_runs_and_prints_what_they_say(page, tmp_path, runner):
    """All blocks of a page are one script, whose home is a fresh directory."""
    programs = PROGRAMS[page]
    marks = [MARK.format(number, page) for number in range(len(programs))]
    script = tmp_path / f"{Path(page).stem}_page.py"
    parts = (
        f"print({mark!r}, flush=True)\n{code_of(program)}"
        for mark, program in zip(marks, programs, strict=True)
    )
    code = _with_fewer_trials("\n\n".join(parts), MAX_TRIALS.get(page))
    script.write_text(code, encoding="utf-8")
    run = functools.partial(run_python, cwd=tmp_path, MPLBACKEND="agg", COLUMNS="120")
    rest = runner.run(script) if page in TORCH_PAGES else run(script.name).stdout
    if "\nclass Test" in code:
        run("-m", "pytest", "-q", "-p", "no:cacheprovider", script.name)
    for number, program in enumerate(programs):
        _, _, rest = rest.partition(marks[number] + "\n")
        printed = rest.partition(marks[number + 1] + "\n")[0] if number + 1 < len(marks) else rest
        if "best:" in program["code"]:
            assert "best:" in printed
        if program["printed"]:
            wanted, flags = program["printed"], doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(wanted, printed, flags), (
                f"{marks[number]} says\n{wanted}\nand prints\n{printed}"
            )
