"""``tuner dash``: an experiment in Optuna's dashboard, in a browser of this machine."""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import click

from .app import OK
from .arguments import readable_argument
from .experiment_tables import Objective, objective_options, open_grid

_HOST: Final = "127.0.0.1"
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_IMPORTANCES: Final = "/api/studies/0/param_importances"


@click.command()
@readable_argument
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    help="The port on this machine, 8080 by default; 0 for any free port.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which a proxy on this machine is called, besides localhost.",
)
@objective_options
def dash(experiment: Path, port: int, hosts: Sequence[str], objective: Objective) -> int:
    """Show an experiment in Optuna's dashboard, until Ctrl-C.

    The dashboard reads the directory again when it has changed, so it follows a running experiment,
    and changes nothing. Trials that were stopped early are shown as pruned (as complete, with
    several objectives), paused ones as running. Importances are those of get_param_importances,
    which compares trials at a common iteration. It listens on this machine only, and answers
    requests for localhost only, so that no other site can read it through a browser. Needs the
    extra dash.

    \b
    Example:
      tuner dash digits --port 8081
    """
    if objective.metric:
        open_grid(experiment, objective)  # raises if no trial has reported the metric
    try:
        application = _guarded(_application(experiment, objective), _LOCAL.union(hosts))
        server = make_server(_HOST, port, application, _Server, _SilentHandler)
    except ValueError as refusal:
        raise click.UsageError(
            f"{refusal}; give {'--mode' if objective.metric else '--metric and --mode'}"
        ) from refusal
    except OSError as taken:
        raise click.UsageError(
            f"cannot listen on port {port} ({taken.strerror}); --port 0 uses any free port"
        ) from taken
    with server:
        click.echo(f"http://{_HOST}:{server.server_port}/dashboard/  (read-only; Ctrl-C ends it)")
        server.serve_forever()
    return OK


def _application(experiment: Path, objective: Objective) -> Any:
    try:
        dashboard = importlib.import_module("optuna_dashboard")
        storages = importlib.import_module("tuner.analysis.optuna_storage")
    except ImportError as missing:
        raise ImportError(
            f'the dashboard needs {missing.name}; pip install "tuner-hpo[dash]"'
        ) from missing
    storage = storages.ExperimentStorage(experiment, objective.metric, objective.mode)
    return _read_only(_with_importances(dashboard.wsgi(storage), storage))


def _guarded(application: Any, hosts: Collection[str]) -> Any:
    """Return the application for these hosts and for paths that lead nowhere else.

    A site whose name is made to mean this machine, once a browser has opened it, could read the
    experiment otherwise; its requests name it as their host.
    """
    known = {host.casefold() for host in hosts}

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        host = environ.get("HTTP_HOST", "").casefold()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.removesuffix(".") not in known:
            status, reason = "403 Forbidden", f"tuner dash answers {', '.join(sorted(known))} only"
        elif ".." in environ["PATH_INFO"].replace("\\", "/").split("/"):
            status, reason = "404 Not Found", "there is no such page"
        else:
            environ.setdefault("HTTP_ACCEPT_ENCODING", "")  # without it the dashboard fails
            return application(environ, start_response)
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps({"reason": reason}).encode()]

    return answer


def _read_only(application: Any) -> Any:
    """Return the application without requests that would change something."""

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        start_response(
            "405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET, HEAD")]
        )
        return [
            json.dumps(
                {"reason": "tuner dash is read-only: experiments cannot be changed here"}
            ).encode()
        ]

    return answer


def _with_importances(application: Any, storage: Any) -> Any:
    """Return the application with our importances.

    The dashboard's own leave out trials that were stopped early.
    """

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != _IMPORTANCES:
            return application(environ, start_response)
        try:
            answer_body: dict[str, Any] = {"param_importances": _importances(storage)}
            status = "200 OK"
        except ValueError as refusal:
            # The page shows the reason.
            status, answer_body = (
                "400 Bad Request",
                {"reason": str(refusal)},
            )
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(answer_body).encode()]

    return answer


def _importances(storage: Any) -> list[list[dict[str, Any]]]:
    """Return the importances of each objective as the dashboard's page expects them.

    Parameters that never differ are left out.
    """
    kinds = {
        name: type(kind).__name__
        for trial in storage.get_all_trials(0)
        for name, kind in trial.distributions.items()
    }
    return [
        [
            {"name": name, "importance": share, "distribution": kinds[name]}
            for name, share in found.shares.items()
            if name in kinds
        ]
        for found in storage.param_importances()
    ]


class _Server(ThreadingMixIn, WSGIServer):
    """Server that answers several requests of a browser at a time."""

    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    """Request handler without a log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Do nothing."""
