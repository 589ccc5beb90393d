"""Checks, tests and benchmarks, each in a separate environment.

``nox`` runs all checks, ``nox -s tests -- -k asha`` some of the tests.
"""

import time

import nox

nox.options.sessions = ["tests", "nevergrad", "heavy", "lint", "types", "imports", "docs"]
nox.options.reuse_existing_virtualenvs = True

NEVERGRAD_TESTS = (
    "tests/searchers",
    "tests/contracts",
    "tests/spec/test_argument_codec.py",
    "tests/end_to_end/test_search_libraries.py",
    "tests/test_house.py",
)
"""Files with tests of `NevergradSearch`."""


def install(session: nox.Session, extra: str) -> None:
    """Install the project with one of its extras, at the pinned versions."""
    session.install("--editable", f".[{extra}]", "--constraint", "constraints.txt")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the test suite on all cores, or pytest with the arguments after ``--``."""
    install(session, "test")
    session.run("pytest", *(session.posargs or ["-n", "auto", "--dist", "worksteal"]))


@nox.session
def nevergrad(session: nox.Session) -> None:
    """Run the tests of `NevergradSearch`.

    Its library requires another release of bayesian-optimization than the other libraries.
    """
    install(session, "test")
    session.install(
        "--no-deps", "nevergrad", "cma", "directsearch", "--constraint", "constraints.txt"
    )
    session.run("pytest", "-k", "nevergrad", *NEVERGRAD_TESTS)


@nox.session
def heavy(session: nox.Session) -> None:
    """Run the tests that need TensorFlow, Ray or Dask, too large for the other sessions."""
    install(session, "test-heavy")
    session.run(
        "pytest",
        "-k",
        "tensorflow",
        "tests/guides",
        "tests/train/test_tensorflow.py",
        "tests/test_house.py",
    )
    session.run(
        "pytest",
        "tests/execution/cluster/test_ray_engine.py",
        "tests/execution/cluster/test_dask_engine.py",
        "tests/end_to_end/test_ray_engine_fit.py",
    )
    session.run("pytest", "-k", "Ray or Dask", "tests/contracts/test_cluster_executors.py")


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style and formatting of all sources."""
    install(session, "dev")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly."""
    install(session, "dev")
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """Check that each layer imports only the layers below it."""
    install(session, "dev")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site.

    A warning, such as a broken link, is an error.
    """
    install(session, "docs")
    session.run(
        "sphinx-build",
        "--fail-on-warning",
        "--keep-going",
        "-q",
        "-c",
        "docs/site",
        ".",
        "build/site",
    )


@nox.session
def simulation(session: nox.Session) -> None:
    """Run the long simulations: faults, random scheduler experiments and mutation tests.

    Faults are simulated for an hour; the whole session is meant to run overnight.
    """
    install(session, "test")
    session.run("python", "-m", "tests.simulation", *(session.posargs or ["--minutes", "60"]))
    session.run(
        "python",
        "-m",
        "tests.properties.schedulers_at_large",
        "--experiments",
        "20000",
        "--first-seed",
        str(int(time.time())),
    )
    session.run("python", "-m", "tests.simulation.mutation_testing")


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run the benchmarks, or those named after ``--``, and print the figures and their goals."""
    install(session, "examples")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Run the fault and security cases, or those named after ``--``, and update their table."""
    install(session, "test")
    # A case that does not hold is listed in the table as such; it does not fail the session.
    session.run("python", "-m", "benchmarks.faults", *session.posargs, success_codes=range(256))
    session.run("python", "-m", "benchmarks.faults", "--write")


@nox.session
def examples(session: nox.Session) -> None:
    """Run the example."""
    install(session, "examples")
    session.run("python", "examples/digits_mlp.py", "--storage-path", session.create_tmp())
