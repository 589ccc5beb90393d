"""``tuner dash``: Optuna's dashboard over a directory."""

import io
import json
import sys

import pytest

import tuner as tune
from tests.cli.conftest import run
from tuner.cli import dashboard
from tuner.cli.experiment_tables import Objective


def asked(application, path, method="GET", **more):
    """Return status and answer of the application to a request."""
    told = []
    environ = {
        **more,
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SERVER_NAME": "here",
        "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
    }
    body = b"".join(application(environ, lambda status, headers, *_: told.append(status)))
    return told[0], body


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")  # those of the dashboard's own dependencies
def test_the_dashboard_shows_the_trials_and_may_not_delete_them(plain):
    pytest.importorskip("optuna_dashboard")
    application = dashboard._application(plain, Objective())
    status, body = asked(application, "/api/studies/0")
    assert status.startswith("200")
    trials = json.loads(body)["trials"]
    assert [trial["values"] for trial in trials] == [[0.875], [0.5], [3.125]]
    assert asked(application, "/api/studies/0", method="DELETE")[0].startswith("405")
    assert len(json.loads(asked(application, "/api/studies/0")[1])["trials"]) == 3


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_importances_are_those_of_the_results_also_where_trials_were_stopped_early(storage):
    pytest.importorskip("optuna_dashboard")
    space = {"lr": tune.loguniform(1e-3, 1.0), "kind": "plain", "depth": tune.randint(1, 9)}
    path = run(
        storage,
        "cut",
        num_samples=40,
        space=space,
        scheduler=tune.schedulers.ASHAScheduler(max_t=4, grace_period=1),
    )
    application = dashboard._application(path, Objective())
    states = [
        trial["state"] for trial in json.loads(asked(application, "/api/studies/0")[1])["trials"]
    ]
    assert states.count("Pruned") > states.count("Complete")
    status, body = asked(application, "/api/studies/0/param_importances")
    [told] = json.loads(body)["param_importances"]
    expected = tune.ResultGrid.from_directory(path).get_param_importances()
    assert status.startswith("200")
    assert {one["name"]: one["importance"] for one in told} == {
        name: expected[name] for name in ("lr", "depth")
    }
    assert {one["name"]: one["distribution"] for one in told} == {
        "lr": "FloatDistribution",
        "depth": "IntDistribution",
    }


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_without_enough_trials_the_page_is_told_why_there_are_no_importances(plain):
    pytest.importorskip("optuna_dashboard")
    status, body = asked(
        dashboard._application(plain, Objective()), "/api/studies/0/param_importances"
    )
    assert status.startswith("400")
    assert (
        "at least 20 trials with a finite value at iteration 4, got 3" in json.loads(body)["reason"]
    )


def test_without_the_extra_it_is_named(call, plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    assert 'pip install "tuner-hpo[dash]"' in call("dash", "plain", code=3).stderr


def test_a_port_that_is_taken_is_told(call, plain, monkeypatch):
    def refuse(*_):
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(dashboard, "_application", lambda *_: None)
    monkeypatch.setattr(dashboard, "make_server", refuse)
    assert (
        "cannot listen on port 8080 (Address already in use); --port 0"
        in call("dash", "plain", code=2).stderr
    )


def test_a_request_that_would_change_something_is_answered_with_the_reason():
    told = []
    application = dashboard._read_only(lambda environ, start_response: [b"shown"])
    assert application({"REQUEST_METHOD": "GET"}, None) == [b"shown"]
    [body] = application({"REQUEST_METHOD": "POST"}, lambda status, headers: told.append(status))
    assert told == ["405 Method Not Allowed"]
    assert b"read-only" in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", "200"),
        ("127.0.0.1:4711", "200"),
        ("LOCALHOST", "200"),
        ("localhost.", "200"),
        ("[::1]:80", "200"),
        ("my.proxy", "200"),
        ("evil.example", "403"),
        ("evil.example:8080", "403"),
        ("localhost.evil.example", "403"),
        ("localhost:80.evil.example", "403"),
        ("evil@localhost", "403"),
        ("", "403"),
    ],
)
def test_only_requests_for_this_machine_are_answered(host, status):
    def shown(environ, start_response):
        start_response("200 OK", [])
        return [b"{}"]

    application = dashboard._guarded(shown, {*dashboard._LOCAL, "my.proxy"})
    assert asked(application, "/", HTTP_HOST=host)[0].startswith(status)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/dashboard/", "200"),
        ("/static/bundle.js", "200"),
        ("/static/nothing.js", "404"),
        ("/static/../app.py", "404"),
        ("/static//etc/passwd", "404"),
        ("/static/..\\..\\x", "404"),
        ("/dashboard/../../etc/passwd", "404"),
        ("/etc/passwd", "404"),
        ("/api/studies/99", "404"),
    ],
)
def test_paths_outside_are_not_found(plain, path, status):
    pytest.importorskip("optuna_dashboard")
    application = dashboard._guarded(dashboard._application(plain, Objective()), dashboard._LOCAL)
    assert asked(application, path, HTTP_HOST="localhost")[0].startswith(status)
