"""``tuner run``: flags and files, what is refused, and dry runs."""

import click
import pytest

from tuner.cli.sweep_end import told_in_one_line
from tuner.core.trial import CANNOT_PAUSE
from tuner.errors import CannotPause

COMMAND = ("--", "python", "train.py", "--lr", "{lr}")
SEARCH = ("-n", "6", "-p", "lr=loguniform(1e-5, 1e-1)", "--metric", "loss", "--mode", "min")


@pytest.fixture
def folder(storage, tmp_path, monkeypatch):
    """The working directory, with a script."""
    (tmp_path / "train.py").write_text("print('loss=1')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(done):
    """Return what a dry run tells beneath the commands."""
    lines = done.stdout.partition("\n\n")[2].splitlines()
    return dict(line.split("  ", 1) for line in lines if "  " in line)


def test_a_dry_run_shows_the_first_commands_and_starts_nothing(call, folder):
    done = call("run", *SEARCH, "--seed", 1, "--name", "digits", "--dry-run", *COMMAND)
    commands = done.stdout.partition("\n\n")[0].splitlines()
    assert len(commands) == 5
    assert all(line.startswith("python train.py --lr ") for line in commands)
    assert {key: value.strip() for key, value in facts(done).items()} == {
        "program": f"train.py, in {folder}",
        "trials": "6",
        "metric": "loss (min)",
        "reports": "tuner.report in Python, or lines of JSON in TUNER_REPORT",
        "checkpoints": "none, so trials are stopped for good",
        "each trial": "1 cpu",
        "seed": "1",
        "stored in": str(folder / "tuner_results" / "digits"),
    }
    assert "Searcher: AutoSearch (default)" in done.stdout
    assert list((folder / "tuner_results").iterdir()) == []


def test_a_dry_run_with_the_same_seed_shows_the_same_commands(call, folder):
    first, again = (call("run", *SEARCH, "--seed", 1, "--dry-run", *COMMAND) for _ in range(2))
    assert first.stdout == again.stdout
    assert "(drawn; --seed fixes it)" in call("run", *SEARCH, "--dry-run", *COMMAND).stdout


def test_that_trials_cannot_be_paused_is_told_with_options():
    with (
        pytest.raises(click.ClickException, match="or leave out --checkpoints and take asha"),
        told_in_one_line(),
    ):
        raise CannotPause(f"{CANNOT_PAUSE.message}; when this is mended, continue with\n    x")


def test_a_dry_run_shows_no_more_commands_than_there_are_trials(call, folder):
    done = call("run", *SEARCH, "-n", 2, "--dry-run", *COMMAND)
    assert len(done.stdout.partition("\n\n")[0].splitlines()) == 2


def test_a_dry_run_of_a_grid_shows_all_its_commands(call, folder):
    done = call("run", "-p", "lr=grid(1, 2)", "-p", "name=a b", "--dry-run", "--", "echo", "{args}")
    assert done.stdout.splitlines()[:3] == [
        "echo --lr 1 --name 'a b'",
        "echo --lr 2 --name 'a b'",
        "",
    ]
    assert facts(done)["trials"].strip() == "2"
    assert facts(done)["stored in"].strip() == str(folder / "tuner_results" / "echo_<date>")
    assert facts(done)["metric"].strip() == "none"


def test_flags_override_a_file(call, folder):
    (folder / "sweep.yaml").write_text("""\
command: python train.py {args}
space:
  lr: grid(1, 2)
  width: 64
metric: loss
mode: min
report: 'loss=(?P<loss>.*)'
stop: {loss: 0.1, training_iteration: 9}
time_limit: 2h
budget: {cpu_hours: 20, iterations: 50}
""")
    flags = ("-p", "width=128", "--mode", "max", "--stop", "training_iteration=3", "--gpus", 0.5)
    more = ("--total-resources", "gpu=1", "--time-limit", "90s", "--budget", "iterations=9")
    done = call("run", "sweep.yaml", *flags, *more, "--dry-run")
    assert done.stdout.splitlines()[0] == "python train.py --lr 1 --width 128"
    assert facts(done)["metric"].strip() == "loss (max)"
    assert facts(done)["stops"].strip() == "loss: 0.1, training_iteration: 3"
    assert facts(done)["time limit"].strip() == "1m30s"
    assert facts(done)["budget"].strip() == "20 cpu_hours, 9 iterations"
    assert facts(done)["each trial"].strip() == "1 cpu, 0.5 gpu"
    assert facts(done)["reports"].strip() == "lines of output that match loss=(?P<loss>.*)"
    done = call("run", "sweep.yaml", "--dry-run", "--", "echo", "{lr}", "{width}")
    assert done.stdout.splitlines()[0] == "echo 1 64"


def test_a_search_that_may_end_early_has_at_most_its_samples(call, folder):
    done = call("run", *SEARCH, "--stop-search", "30", "--dry-run", *COMMAND)
    assert facts(done)["trials"].strip().endswith(" or fewer (stop_search=StopSearch(patience=30))")


def test_a_toml_file_says_the_same(call, folder):
    (folder / "sweep.toml").write_text("""\
command = ["echo", "{lr}"]
[space]
lr = "grid(1, 2)"
""")
    assert call("run", "sweep.toml", "--dry-run").stdout.startswith("echo 1\necho 2\n\n")


def test_secrets_in_a_command_are_not_printed(call, folder):
    words = [
        "--param",
        "lr=1",
        "--dry-run",
        "--",
        "python",
        "train.py",
        "--api-key",
        "s3cr3tkey1",
        "{lr}",
    ]
    printed = call("run", *words).stdout
    assert "python train.py --api-key '***' 1" in printed
    assert "s3cr3tkey1" not in printed


def test_a_line_for_the_shell_is_shown_as_it_is(call, folder):
    done = call("run", "-p", "lr=grid(1)", "--shell", "--dry-run", "--", "echo {lr} | cat")
    assert done.stdout.startswith("echo 1 | cat\n\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "tuner run: there is no command to run; write it behind --"),
        (("-p", "lr", *COMMAND), "tuner run: --param: a parameter must be NAME=DOMAIN, got 'lr'"),
        (("-p", "lr=unifrm(0,1)", *COMMAND), "--param: lr: 'unifrm(0,1)' is no domain; did you"),
        (("-p", "lr=1", "-p", "lr=2", *COMMAND), "--param: lr is given twice; give it once"),
        (("-p", "lr=uniform(0,1)", *COMMAND), "the number of trials is not given; add num_samples"),
        ((*SEARCH, "--", "python", "train.py", "{lrr}"), "did you mean {lr}?"),
        ((*SEARCH, "--", "python", "train.py"), "the parameter 'lr' is used nowhere in the comm"),
        ((*SEARCH, "--", "python", "trian.py", "{lr}"), "the script 'trian.py' of the command is"),
        (
            (*SEARCH, "--", "pyhton", "train.py", "{lr}"),
            "the program 'pyhton' is not found in PATH",
        ),
        (
            (*SEARCH[:-2], *COMMAND),
            "--metric: the metric 'loss' needs a mode; add mode: min or max",
        ),
        ((*SEARCH, "--scheduler", "ahsa", *COMMAND), "--scheduler must be one of 'fifo', 'asha', "),
        ((*SEARCH, "--scheduler", "pbt", *COMMAND), "'pbt' pauses trials and continues them"),
        (
            (*SEARCH, "--scheduler-arg", "a=1", *COMMAND),
            "--scheduler-arg: a needs the name of a sch",
        ),
        ((*SEARCH, "--stop", "loss", *COMMAND), "--stop must be NAME=VALUE, got 'loss'"),
        ((*SEARCH, "--env", "A=1", "--env", "A=2", *COMMAND), "--env A is given twice"),
        ((*SEARCH, "--report", "loss=.*", *COMMAND), "--report must have a named group"),
        (
            (*SEARCH, "--budget", "gpu=1", *COMMAND),
            "--budget must be in 'iterations', 'trial_hours', or hours of a resource",
        ),
        (
            (*SEARCH, "--time-limit", "soon", *COMMAND),
            "--time-limit must be a number of seconds, or",
        ),
        (
            (*SEARCH, "--cpus", "1000", *COMMAND),
            "; ask for less cpu, or give --total-resources, or a",
        ),
        ((*SEARCH, "--cwd", "nowhere", *COMMAND), "cwd must be a directory, got "),
        ((*SEARCH, "--resume", *COMMAND), "--resume needs the name of the experiment to continue"),
        ((*SEARCH, "--lr", "{lr}"), "; write a command and its options behind --"),
        ((*SEARCH, "--metrc", "loss", *COMMAND), "Did you mean one of: '--metric'"),
        (("train.py",), "write -- before a command, as in tuner run ... -- python train.py"),
        (("nowhere.yaml",), "there is no file 'nowhere.yaml'"),
        (("nowhere",), "there is no file 'nowhere'; write a command and its options behind --"),
        ((*SEARCH, "python", "train.py"), "(train.py); write a command and its options behind --"),
    ],
)
def test_what_is_not_accepted_is_refused_before_anything_starts(call, folder, arguments, told):
    done = call("run", *arguments, code=2)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list((folder / "tuner_results").iterdir()) == []


def test_what_is_wrong_with_a_file_is_told_with_its_line(call, folder):
    (folder / "sweep.yaml").write_text("command: echo {lr}\nspace:\n  lr: loguniform(0, 1)\n")
    told = call("run", "sweep.yaml", code=2).stderr
    assert told.startswith("tuner run: sweep.yaml:3: lr: 'loguniform(0, 1)' cannot be used: ")
    (folder / "sweep.yaml").write_text("command: echo\nschedular: asha\n")
    told = call("run", "sweep.yaml", code=2).stderr
    assert told == "tuner run: sweep.yaml:2: unknown key 'schedular'; did you mean 'scheduler'?\n"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_experiment_of_that_name_is_refused_with_the_ways_out(call, plain, folder, more):
    told = call("run", *SEARCH, "--name", "plain", *more, *COMMAND, code=2).stderr
    assert told.startswith(
        f"tuner run: there is an experiment 'plain' in {plain}; continue it with"
    )
    assert f"--resume or tuner resume {plain}, " in told
    assert "--if-exists new" in told


def test_an_experiment_of_another_program_is_not_continued(call, plain, folder):
    told = call("run", *SEARCH, "--name", "plain", "--resume", *COMMAND, code=2).stderr
    assert "which the experiment in " in told
    assert "got 'train.py'" in told


def test_the_shell_completes_schedulers_and_files(call, folder, monkeypatch):
    monkeypatch.setenv("_TUNER_COMPLETE", "bash_complete")
    for typed, expected in [
        (("run", "--scheduler", "as"), "plain,asha"),
        (("run", "--scheduler", "mo"), "plain,moasha"),
        (("run", "--scheduler", "au"), "plain,auto"),
        (("run", "--searcher", "ra"), "plain,random"),
        (("run", "sw"), "file,sw"),
        (("run", "--dry"), "plain,--dry-run"),
    ]:
        monkeypatch.setenv("COMP_WORDS", " ".join(["tuner", *typed]))
        monkeypatch.setenv("COMP_CWORD", str(len(typed)))
        assert expected in call().stdout.split()


def test_several_metrics_and_constraints_are_given_as_options(call, folder):
    given = ["-n", "6", "-p", "lr=loguniform(1e-5, 1e-1)", "--searcher", "random"]
    given += ["--metric", "acc", "--mode", "max", "--metric", "latency", "--mode", "min"]
    given += ["--constraint", "size_mb<=4", "--constraint", " val/acc >= 0.8"]
    given += ["--constraint", "size_mb >= 1"]
    told = facts(call("run", *given, "--dry-run", *COMMAND))
    assert told["metric"].strip() == "acc (max), latency (min)"
    assert told["constraints"].strip() == "size_mb <= 4, size_mb >= 1, val/acc >= 0.8"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--constraint", "size_mb < 4"),
            "--constraint must be comparisons such as 'size_mb <= 4'",
        ),
        (
            ("--constraint", "size_mb <= 4", "--constraint", "size_mb <= 3"),
            "--constraint ['size_mb'] must be one comparison, or a list of a lower and an upper bo",
        ),
        (("--constraint", "size_mb <= big"), "--constraint ['size_mb'] must be '<=' or '>=' and a"),
        (
            ("--metric", "cost", "--mode", "max", "--mode", "min"),
            "mode must be one for each metric, or one for all",
        ),
        (("--metric", "loss"), "metric must name one metric or several different ones"),
    ],
)
def test_goals_that_make_no_sense_are_refused(call, folder, options, message):
    done = call("run", *SEARCH, "--searcher", "random", *options, "--dry-run", *COMMAND, code=2)
    assert message in " ".join(done.stderr.split())


def test_a_file_has_lists_of_metrics_and_a_mapping_of_constraints(call, folder):
    (folder / "sweep.yaml").write_text(
        "command: python train.py --lr {lr}\n"
        "space: {lr: 'loguniform(1e-5, 1e-1)'}\n"
        "metric: [acc, latency]\n"
        "mode: [max, min]\n"
        "constraints: {size_mb: '<= 4', fairness: ['>= 0.8', '<= 1']}\n"
        "num_samples: 6\n"
        "searcher: random\n"
    )
    told = facts(call("run", "sweep.yaml", "--dry-run", "--constraint", "size_mb <= 3"))
    assert told["metric"].strip() == "acc (max), latency (min)"
    assert told["constraints"].strip() == "size_mb <= 3, fairness >= 0.8, fairness <= 1"
