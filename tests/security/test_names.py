"""Names of users, configurations and folders never lead outside the experiment's directory."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.core.events import TrialSuggested
from tuner.errors import StorageError
from tuner.journal import records
from tuner.journal.reader import recover
from tuner.journal.writer import Journal
from tuner.storage.layout import check_name

PIECES = [
    "..",
    "/",
    "\\",
    "\0",
    "\n",
    "\r",
    "\x1b[2J",
    "$(id)",
    "`id`",
    ";",
    "|",
    "&",
    "*",
    "?",
    "~",
    "%2e%2e",
    " ",
    "\N{FULLWIDTH SOLIDUS}",
    "\N{SUPERSCRIPT ONE}",
    "\u202e",
    "\ud800",
]
DEVICES = ["CON", "nul", "AUX.txt", "com1", "LPT9.log", "prn."]
SINGLE = [
    "", ".", "..", "...", ".hidden", "-rf", "_x", "x.", "a" * 101, "a" * 300, "/abs", "../x",
    "x/../y", "C:\\x", "\\\\host\\share", "x//y", "x/./y", "x/.hidden", "x/ y", "x /y",
    "x/nul/y", "x/journal", "journal/x", "a/b/c/d/e", "=x",
    ":", ":x", "x:", "x::y", "memory::x", "x:/y", "s3://x", "\N{COMBINING ACUTE ACCENT}x",
    "实" * 67,
]  # fmt: skip
INNER = [piece for piece in PIECES if piece not in ("..", "/", " ")]
HOSTILE = sorted(
    {
        *SINGLE,
        *DEVICES,
        *PIECES,
        *(f"{piece}x" for piece in PIECES),
        *(f"x{piece}" for piece in [*INNER, "/", " "]),
        *(f"x{piece}y" for piece in INNER),
        *(f"a{one}{other}b" for one, other in itertools.combinations(PIECES[1:17], 2)),
    }
)


def test_there_are_two_hundred_of_them():
    assert len(HOSTILE) >= 200


def test_hostile_names_of_an_experiment_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in HOSTILE:
        with pytest.raises(ValueError, match="name must "):
            tune.RunConfig(name=name, storage_path=tmp_path / "storage")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "digits-größe", "实验", "café", "cafe\N{COMBINING ACUTE ACCENT}", "a:b", "12:30", "हिन्दी",
        "опыт/номер 1",
        "é" * 100, "x" * 100,
    ],
)  # fmt: skip
def test_letters_of_any_alphabet_and_colons_are_names(name):
    assert check_name(name) == name


@given(st.text() | st.text("ax./ _=-", max_size=8))
def test_every_name_is_refused_or_names_a_folder_below(tmp_path_factory, name):
    root = tmp_path_factory.getbasetemp()
    try:
        check_name(name)
    except ValueError:
        return
    assert (root / name).resolve().relative_to(root.resolve()).as_posix() == name


def quick(config):
    tune.report({"loss": 1.0})


@pytest.mark.process
@pytest.mark.parametrize("executor", ["inline", "process"])
def test_no_value_of_a_configuration_enters_a_path(tmp_path, executor):
    values = [name for name in HOSTILE if name.isascii()][:24]
    space = {"x": tune.grid_search(values), "../../up": 1, "/abs": {"..": 2}}
    run_config = tune.RunConfig(
        name="exp", storage_path=tmp_path / "storage", verbose=0, executor=executor
    )
    grid = tune.Tuner(quick, param_space=space, run_config=run_config).fit()
    assert [result.config["x"] for result in grid] == values
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]
    trials = {f"t{number:05d}" for number in range(24)}
    assert {path.name for path in (tmp_path / "storage" / "exp").iterdir()} == trials | {
        "environment.json",
        "experiment.json",
        "journal",
        "lock",
        "snapshot",
    }
    files = {
        path.name.partition(".tfevents")[0]
        for trial in trials
        for path in (tmp_path / "storage" / "exp" / trial).iterdir()
    }
    assert files <= {"params.json", "result.json", "progress.csv", "events.out", "stdout", "stderr"}


@pytest.mark.process
def test_a_trainable_with_a_hostile_name_gets_a_harmless_folder(tmp_path):
    def train(config):
        tune.report({"loss": 1.0})

    train.__name__ = "../../\x1b[31m/etc"
    tune.Tuner(
        train,
        run_config=tune.RunConfig(storage_path=tmp_path / "storage", verbose=0, executor="inline"),
    ).fit()
    (experiment,) = (tmp_path / "storage").iterdir()
    assert experiment.name.isascii()
    assert list(tmp_path.iterdir()) == [tmp_path / "storage"]


@pytest.mark.process
@pytest.mark.parametrize("trial_id", ["../../evil", "/tmp/evil", "..", "", "t1/../../evil"])  # noqa: S108  (what is to be refused)
def test_a_directory_cannot_name_a_trial_outside_itself(tmp_path, trial_id):
    run_config = tune.RunConfig(
        name="exp", storage_path=tmp_path / "storage", verbose=0, executor="inline"
    )
    tune.Tuner(quick, run_config=run_config).fit()
    experiment = tmp_path / "storage" / "exp"
    with Journal(experiment, recover(experiment)) as journal:
        journal.append(records.encode(TrialSuggested(trial_id, {}, {"cpu": 1.0}, ""), 9.0))
    before = sorted(tmp_path.rglob("*"))
    tuner = tune.Tuner.restore(
        experiment, quick, run_config=run_config, tune_config=tune.TuneConfig(num_samples=2)
    )
    for attempt in (tuner.get_results, tuner.fit):
        with pytest.raises(StorageError):
            attempt()
    assert sorted(tmp_path.rglob("*")) == before
