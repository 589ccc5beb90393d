"""``tuner dash``: an experiment in Optuna's dashboard, in a browser of this machine."""

from __future__ import annotations

import importlib
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import click

from .app import OK
from .arguments import foreign_argument
from .grids import Objective, objective_options

_HOST: Final = "127.0.0.1"


@click.command()
@foreign_argument
@click.option("--port", type=click.IntRange(0, 65535), default=8080, help="Where to listen on this machine, 8080; 0 for any free port.")
@objective_options
def dash(experiment: Path, port: int, objective: Objective) -> int:
    """Show an experiment in Optuna's dashboard, until Ctrl-C.

    The dashboard reads the directory anew when it has changed, so a running experiment is seen as it runs, and can change nothing.
    Trials that were stopped early are pruned there, paused ones running. It listens on this machine alone. Needs the extra dash.

    \b
    Example:
      tuner dash digits --port 8081
    """
    try:
        application = _application(experiment, objective)
        server = make_server(_HOST, port, application, _Server, _Quiet)
    except ValueError as refusal:
        raise click.UsageError(f"{refusal}; give --metric and --mode") from refusal
    except OSError as taken:
        raise click.UsageError(f"port {port} cannot be listened to ({taken.strerror}); --port 0 takes any that is free") from taken
    with server:
        click.echo(f"http://{_HOST}:{server.server_port}/dashboard/  (Ctrl-C ends it)")
        server.serve_forever()
    return OK


def _application(experiment: Path, objective: Objective) -> Any:
    try:
        dashboard = importlib.import_module("optuna_dashboard")
        storages = importlib.import_module("tuner.analysis.optuna_storage")
    except ImportError as missing:
        raise ImportError(f'the dashboard needs {missing.name}; pip install "tuner-hpo[dash]"') from missing
    return dashboard.wsgi(storages.ExperimentStorage(experiment, objective.metric, objective.mode))


class _Server(ThreadingMixIn, WSGIServer):
    """Answers several requests of a browser at a time."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Say nothing."""
