"""Checks, tests and benchmarks.

``nox -s unit`` runs the unit tests, ``nox -s unit -- -k asha`` some of them, ``nox`` all checks,
and ``nox -l`` lists what there is. The quick tiers of the tests run in the environment that nox is
installed in, everything else in separate environments.
"""

import sys
import time

import nox

nox.options.sessions = ["tests", "property", "heavy", "lint", "types", "imports", "docs"]
nox.options.reuse_existing_virtualenvs = True

PARALLEL = ("-n", "auto", "--dist", "worksteal")


def install(session: nox.Session, extra: str) -> None:
    """Install the project with some of its extras, at the pinned versions."""
    session.install("--editable", f".[{extra}]", "--constraint", "constraints.txt")


def run_tier(session: nox.Session, expression: str, *options: str) -> None:
    """Run the tests of a tier in the environment of nox, whether or not it is activated."""
    session.run(
        sys.executable, "-m", "pytest", "-m", expression, *options, *PARALLEL, *session.posargs
    )


@nox.session(python=False)
def unit(session: nox.Session) -> None:
    """Run the tests without processes, threads and large libraries: in a minute on two cores."""
    run_tier(session, "unit")


@nox.session(name="property", python=False)
def property_(session: nox.Session) -> None:
    """Try the properties with all their examples, and simulate some thousands of experiments."""
    run_tier(session, "property", "--full")


@nox.session(python=False)
def process(session: nox.Session) -> None:
    """Run the tests with real processes, threads and servers."""
    run_tier(session, "process")


@nox.session(python=False)
def guides(session: nox.Session) -> None:
    """Run the code of the pages and guides."""
    run_tier(session, "guides")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run all tests but the heavy ones, as README's command does."""
    install(session, "test")
    session.run("pytest", "-m", "not heavy", *PARALLEL, *session.posargs)


@nox.session
def heavy(session: nox.Session) -> None:
    """Run the tests with frameworks, cluster engines, servers and browsers."""
    install(session, "test-heavy")
    # It asks for another release of bayesian-optimization than the tests do.
    session.install(
        "--no-deps", "nevergrad", "cma", "directsearch", "--constraint", "constraints.txt"
    )
    session.run("pytest", "-m", "heavy", *PARALLEL, *session.posargs)


@nox.session(name="all", python=False)
def all_(session: nox.Session) -> None:
    """Run the tests of all tiers in full."""
    for name in ("tests-3.11", "property"):
        session.notify(name)
    session.notify("heavy", posargs=["--full"])


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
def mutants(session: nox.Session) -> None:
    """Plant defects in a copy of the packages, each of which the simulation has to find."""
    install(session, "test")
    session.run("python", "-m", "tests.simulation.mutation_testing", *session.posargs)


@nox.session
def simulation(session: nox.Session) -> None:
    """Simulate experiments for an hour, and as many with random schedulers: for a night."""
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


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run the benchmarks, or those named after ``--``, and print the figures and their goals."""
    install(session, "examples")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Run the fault and security cases, or those named after ``--``, and update their table."""
    install(session, "test-heavy")
    # A case that does not hold is listed in the table as such; it does not fail the session.
    session.run("python", "-m", "benchmarks.faults", *session.posargs, success_codes=range(256))
    session.run("python", "-m", "benchmarks.faults", "--write")


@nox.session
def examples(session: nox.Session) -> None:
    """Run the example."""
    install(session, "examples")
    session.run("python", "examples/digits_mlp.py", "--storage-path", session.create_tmp())
