"""What can be checked and run, each in an environment of its own: ``nox`` for all checks, ``nox -s tests -- -k asha`` for some."""

import time

import nox

nox.options.sessions = ["tests", "nevergrad", "lint", "types", "imports", "docs"]
nox.options.reuse_existing_virtualenvs = True

NEVERGRAD_TESTS = (
    "tests/searchers",
    "tests/contracts",
    "tests/spec/test_argument_codec.py",
    "tests/end_to_end/test_search_libraries.py",
    "tests/test_house.py",
)
"""Where `NevergradSearch` is tested among others."""


def install(session: nox.Session, extra: str) -> None:
    """Install the project with one of its extras, at the pinned versions."""
    session.install("--editable", f".[{extra}]", "--constraint", "constraints.txt")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the test suite, on all cores; arguments behind ``--`` go to pytest instead."""
    install(session, "test")
    session.run("pytest", *(session.posargs or ["-n", "auto", "--dist", "worksteal"]))


@nox.session
def nevergrad(session: nox.Session) -> None:
    """Run the tests of `NevergradSearch`, whose library asks for another release of bayesian-optimization than the others."""
    install(session, "test")
    session.install(
        "--no-deps", "nevergrad", "cma", "directsearch", "--constraint", "constraints.txt"
    )
    session.run("pytest", "-k", "nevergrad", *NEVERGRAD_TESTS)


@nox.session
def lint(session: nox.Session) -> None:
    """Check rules and layout of all sources."""
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
    """Check that imports go down the floors only."""
    install(session, "dev")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site; a warning, such as a link that leads nowhere, is an error."""
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
    """Simulate faults for an hour, let all schedulers loose, then hunt the planted defects; made for the night."""
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
    """Measure and print a table beside the goals; names of benchmarks behind ``--`` choose some."""
    install(session, "examples")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Run the fault and security cases and put what they come to into the documentation; cases behind ``--`` choose some."""
    install(session, "test")
    # A case that does not hold stands in the table as such.
    session.run("python", "-m", "benchmarks.faults", *session.posargs, success_codes=range(256))
    session.run("python", "-m", "benchmarks.faults", "--write")


@nox.session
def examples(session: nox.Session) -> None:
    """Run the example."""
    install(session, "examples")
    session.run("python", "examples/digits_mlp.py", "--storage-path", session.create_tmp())
