"""Programs as trials: real processes that report, are stopped, continued and killed."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from tests.cluster.fake_cluster import FakeCluster
from tests.waiting import wait_until
from tuner.command import Command
from tuner.command.process import Program

pytestmark = pytest.mark.process


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Write a program into the working directory and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        path.chmod(0o755)
        return name

    return write


def fit(
    command, space=None, *, samples=1, stop=None, executor="process", failures=0, **tune_config
):
    """Run trials of a command and return their results."""
    return tune.Tuner(
        command,
        param_space=space or {"lr": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(num_samples=samples, **tune_config),
        run_config=tune.RunConfig(
            name="exp",
            storage_path=Path.cwd() / "results",
            stop=stop,
            verbose=0,
            executor=executor,
            failure_config=tune.FailureConfig(max_failures=failures),
            resources={"cpu": 2},
        ),
    ).fit()


def python(name, *words):
    return [sys.executable, name, *words]


def losses(results):
    return [list(result.metrics_dataframe["loss"]) for result in results]


# How programs report.

WAYS = {
    "tuner.report": (
        """
        import sys
        import tuner as tune
        for epoch in range(3):
            tune.report({"loss": float(sys.argv[1]) * epoch})
        """,
        {},
    ),
    "lines of JSON": (
        """
        import os, sys
        with open(os.environ["TUNER_REPORT"], "a") as file:
            for epoch in range(3):
                print('{"loss": %f}' % (float(sys.argv[1]) * epoch), file=file, flush=True)
        """,
        {},
    ),
    "output": (
        """
        import sys
        for epoch in range(3):
            print("loss is", float(sys.argv[1]) * epoch, end="" if epoch == 2 else "\\n")
        """,
        {"report": r"loss is (?P<loss>\S+)"},
    ),
    "progress bar": (
        """
        import sys
        for epoch in range(3):
            print("loss is", float(sys.argv[1]) * epoch, end="\\r", file=sys.stderr)
        """,
        {"report": r"loss is (?P<loss>\S+)"},
    ),
    "CSV": (
        """
        import sys
        with open(f"log{sys.argv[1]}.csv", "w") as file:
            print("step,loss", file=file)
            for epoch in range(3):
                print(epoch, float(sys.argv[1]) * epoch, sep=",", file=file)
        """,
        {"report_file": "log{lr}.csv"},
    ),
}


@pytest.mark.parametrize(
    ("way", "executor"),
    [*((way, "process") for way in WAYS), ("tuner.report", "inline"), ("output", "inline")],
)
def test_a_program_reports(way, executor, script):
    text, options = WAYS[way]
    results = fit(Command(python(script(text), "{lr}"), **options), executor=executor)
    assert not results.errors
    assert losses(results) == [[0, 1, 2], [0, 2, 4]]


def test_a_shell_script_with_awk_reports(script):
    name = script(
        """\
        #!/bin/sh
        for epoch in 1 2 3; do
            echo "$TUNER_PARAM_LR $epoch" | awk '{ print "{\\"loss\\": " $1 / $2 "}" }'
        done >> "$TUNER_REPORT"
        """,
        "train.sh",
    )
    results = fit(Command(f"./{name}", variables=True))
    assert losses(results) == [[1, 0.5, 0.333333], [2, 1, 0.666667]]


def test_a_line_for_the_shell_has_pipes_and_its_values_quoted(script):
    command = Command(  # noqa: S604  (in a shell, which is what is tested)
        "echo loss {lr} {name} | sed 's/loss/loss:/'", shell=True, report=r"loss: (?P<loss>\d+) a b"
    )
    results = fit(command, {"lr": tune.grid_search([1, 2]), "name": "a b"})
    assert losses(results) == [[1], [2]]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_compiled_program_reports(script, tmp_path):
    script(
        """
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            FILE *report = fopen(getenv("TUNER_REPORT"), "a");
            for (int epoch = 0; epoch < 3; epoch++)
                fprintf(report, "{\\"loss\\": %f}\\n", atof(argv[1]) * epoch), fflush(report);
            return 0;
        }
        """,
        "train.c",
    )
    compiler = [shutil.which("cc"), "-o", "train", "train.c"]
    subprocess.run(compiler, check=True, cwd=tmp_path)  # noqa: S603
    assert losses(fit(Command("./train {lr}"))) == [[0, 1, 2], [0, 2, 4]]


def test_a_program_knows_its_trial(script):
    name = script(
        """
        import json, os
        import tuner as tune
        context = tune.get_context()
        with open(os.environ["TUNER_CONFIG"]) as file:
            config = json.load(file)
        assert config == {"lr": 1, "model": {"width": 8}}, config
        assert context.get_trial_id() == os.environ["TUNER_TRIAL_ID"] == "t00000"
        assert context.get_trial_resources()["cpu"] == 2
        assert os.path.isdir(context.get_trial_dir())
        assert tune.get_checkpoint() is None and "TUNER_RESUME_DIR" not in os.environ
        tune.report(loss=context.get_seed() % 7)
        """
    )
    command = Command(python(name, "--config", "{json}"), resources={"cpu": 2})
    results = fit(command, {"lr": 1, "model": {"width": 8}})
    assert not results.errors
    assert results[0].metrics["loss"] in range(7)


def test_the_output_is_that_of_the_trial(script):
    name = script(
        """
        import sys
        import tuner as tune
        print("to stdout", flush=True)
        print("to stderr", file=sys.stderr)
        tune.report(loss=1)
        """
    )
    results = fit(Command(python(name, "{args}")))
    trial_dir = Path(results[0].path)
    assert (trial_dir / "stdout").read_text(encoding="utf-8") == "to stdout\n"
    assert (trial_dir / "stderr").read_text(encoding="utf-8") == "to stderr\n"
    assert not list(trial_dir.glob(".tmp*"))


def test_an_error_of_a_report_is_raised_in_the_program(script):
    name = script(
        """
        import tuner as tune
        try:
            tune.report({str(n): n for n in range(2000)})
        except ValueError as error:
            assert "1,000" in str(error) or "1000" in str(error), error
            tune.report(loss=1)
        """
    )
    assert losses(fit(Command(python(name, "{args}")))) == [[1], [1]]


def test_of_processes_that_train_together_the_first_one_reports(script):
    name = script(
        """
        import os, subprocess, sys
        if "RANK" not in os.environ:
            ranks = [
                subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": rank})
                for rank in "01"
            ]
            sys.exit(max(rank.wait() for rank in ranks))
        import tuner as tune
        tune.report(loss=int(os.environ["RANK"]))
        """
    )
    assert losses(fit(Command(python(name, "{args}")))) == [[0], [0]]


def test_ranks_of_a_launcher_around_tuner_do_not_count(script, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("SLURM_PROCID", "3")
    name = script("import tuner as tune\ntune.report(loss=1)\n")
    assert losses(fit(Command(python(name, "{lr}")))) == [[1], [1]]


def test_results_may_be_long(script):
    name = script(
        """
        import json, os, sys
        import tuner as tune
        result = {"loss": 1, "text": "ü" * 150_000}
        if sys.argv[1] == "1":
            tune.report(result)
        else:
            with open(os.environ["TUNER_REPORT"], "a") as file:
                print(json.dumps(result), file=file)
        """
    )
    results = fit(Command(python(name, "{lr}")))
    assert not results.errors
    assert [len(result.metrics["text"]) for result in results] == [150_000] * 2


def test_forked_processes_report_while_threads_do(script):
    name = script(
        """
        import os, threading
        import tuner as tune
        tune.report(loss=0)
        reporting = threading.Thread(target=lambda: [tune.report(loss=0) for _ in range(19)])
        reporting.start()
        for number in range(1, 6):
            if (child := os.fork()) == 0:
                tune.report(loss=number)
                os._exit(0)
            os.waitpid(child, 0)
        reporting.join()
        """
    )
    results = fit(Command(python(name, "{lr}")), {"lr": 1})
    assert sorted(losses(results)[0]) == [0] * 20 + [1, 2, 3, 4, 5]


# How programs end.

ENDLESS = """
    import atexit, itertools, sys, time
    import tuner as tune
    try:
        for epoch in itertools.count(1):
            tune.report(loss=float(sys.argv[1]))
    finally:
        with open(f"ended{sys.argv[1]}", "w") as file:
            file.write(str(epoch))
    """


def test_a_python_program_that_is_stopped_unwinds_by_itself(script, tmp_path):
    results = fit(Command(python(script(ENDLESS), "{lr}")), stop={"training_iteration": 3})
    assert not results.errors
    assert losses(results) == [[1, 1, 1], [2, 2, 2]]
    assert {path.name for path in tmp_path.glob("ended*")} == {"ended1", "ended2"}


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_another_program_that_is_stopped_gets_sigterm_and_leaves_nothing_behind(
    executor, script, tmp_path
):
    name = script(
        """\
        #!/bin/sh
        trap 'touch terminated; kill $child; exit 1' TERM
        setsid sleep 1000 & child=$!
        setsid sh -c 'echo $$ > escaped; exec sleep 1000' &
        echo $child > child
        while [ ! -s escaped ]; do :; done
        while :; do echo '{"loss": 1}' >> "$TUNER_REPORT"; wait $child & done
        """,
        "train.sh",
    )
    results = fit(
        Command(f"./{name} {{lr}}"), {"lr": 1}, stop={"training_iteration": 3}, executor=executor
    )
    assert not results.errors
    assert (tmp_path / "terminated").exists()
    for file in ("child", "escaped"):
        pid = int((tmp_path / file).read_text())
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}/exe").exists(), "the process is gone")


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(script):
    name = script(
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            print("loss", 1)
        """
    )
    command = Command(python(name, "{lr}"), report=r"loss (?P<loss>\d)", grace_s=0.1)
    results = fit(command, {"lr": 1}, stop={"training_iteration": 3})
    assert not results.errors
    assert losses(results) == [[1, 1, 1]]


def test_what_a_killed_process_has_left_behind_is_removed_later(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)

        def started():
            before = set(Path(place).iterdir())
            program = Program(["true"], os.environ, place)
            [directory] = set(Path(place).iterdir()) - before
            return program, directory

        first, living = started()
        abandoned = living.with_name(f"{living.name}x")
        abandoned.mkdir()
        os.mkfifo(abandoned / "report")
        orphan = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            env={**os.environ, "TUNER_SESSION_ADDRESS": f"{abandoned}/session"},
        )
        for directory in (living, abandoned):
            os.utime(directory, (1, 1))
        second, other = started()
        assert set(Path(place).iterdir()) == {living, other}
        assert orphan.wait() == -signal.SIGKILL
        orphan.stdin.close()
        first.end(0)
        second.end(0)


def test_asha_stops_programs(script):
    name = script(
        """
        import sys
        for epoch in range(1, 10):
            print(f"loss {float(sys.argv[1]) / epoch}")
        """
    )
    results = fit(
        Command(python(name, "{lr}"), report=r"loss (?P<loss>\S+)"),
        {"lr": tune.grid_search([1, 2, 3, 4])},
        metric="loss",
        mode="min",
        max_concurrent_trials=1,
        scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    )
    assert not results.errors
    assert [len(curve) for curve in losses(results)] == [9, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sys; print('a\\nbad data', file=sys.stderr); sys.exit(3)",
            "train.py exited with code 3: bad data",
        ),
        ("raise ValueError('lr too large')", "exited with code 1: ValueError: lr too large"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        (
            "pass",
            r"has reported nothing, no line of its output matches '^loss (?P<loss>\S+)'",
        ),
        (
            "print('val loss = 0.5')",
            r"--report 'val loss = (?P<loss>\S+)' finds 'val loss = 0.5'",
        ),
    ],
)
def test_a_failure_is_told_by_what_the_program_has_printed(text, said, script):
    results = fit(Command(python(script(text), "{lr}"), report=r"^loss (?P<loss>\S+)"), {"lr": 1})
    [error] = results.errors
    assert said in str(error)


def test_a_program_that_cannot_be_started_is_named_without_secrets(script):
    script("")
    results = fit(Command(["{program}", "--api-key", "s3cr3tkey1"]), {"program": "no_program"})
    [error] = results.errors
    told = "no_program --api-key '***' cannot be started in"
    assert told in str(error)
    text = Path(results[0].path, "error.txt").read_text(encoding="utf-8")
    assert "No such file or directory: 'no_program'" in text
    assert "Traceback" not in text
    assert "s3cr3tkey1" not in text


def test_failures_are_grouped_by_what_was_raised_in_the_program(script):
    name = script("import sys\nraise ValueError(f'lr is {sys.argv[1]}')\n")
    results = fit(Command(python(name, "{lr}")), max_concurrent_trials=1)
    text = Path(results[0].path, "error.txt").read_text(encoding="utf-8")
    assert "ValueError: lr is 1" in text
    assert "train.py:2" in text or "line 2" in text
    frame = results.get_dataframe()
    assert len(frame) == 2


def test_lines_that_are_no_json_are_counted_and_the_first_is_shown(script):
    name = script(
        "import os\nopen(os.environ['TUNER_REPORT'], 'a').write('loss=1\\nx\\n{\"loss\": 2}\\n')\n"
    )
    results = fit(Command(python(name, "{lr}")), {"lr": 1})
    assert losses(results) == [[2]]
    told = Path(results[0].path, "stderr").read_text(encoding="utf-8")
    assert "2 lines that train.py has reported are no JSON objects" in told
    assert "'loss=1'" in told


# Checkpoints, and experiments that are interrupted.

COUNTING = """
    import os, pathlib, sys
    import tuner as tune
    state = pathlib.Path(os.environ["TUNER_CHECKPOINT_DIR"], "count")
    count = int(state.read_text()) if state.exists() else 0
    print("from", count, flush=True)
    while count < 9:
        count += 1
        state.with_suffix(".new").write_text(str(count))
        state.with_suffix(".new").rename(state)
        if os.environ.get("KILL_AT") == f"{sys.argv[1]}:{count}":
            open("killing", "w").close()
            os.kill(int(open("driver").read()), 9)
            import time
            time.sleep(1000)
        tune.report(loss=float(sys.argv[1]) / count, count=count)
    """


def test_programs_that_save_are_paused_and_promoted(script):
    results = fit(
        Command(python(script(COUNTING), "{lr}"), checkpoints=True),
        {"lr": tune.grid_search([4, 3, 2, 1])},
        metric="loss",
        mode="min",
        max_concurrent_trials=1,
        scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    )
    assert not results.errors
    best = results.get_best_result()
    assert best.config == {"lr": 1}
    assert [int(count) for count in best.metrics_dataframe["count"]] == list(range(1, 10))
    starts = Path(best.path, "stdout").read_text(encoding="utf-8").split()[1::2]
    assert starts[0] == "0"


def test_programs_that_are_ahead_of_their_results_are_paused_and_begin_anew(script):
    name = script(
        """
        import os, sys
        from pathlib import Path
        Path(os.environ["TUNER_CHECKPOINT_DIR"], "state").write_text("9")
        with open("starts", "a") as file:
            print(os.environ.get("TUNER_RESUME_DIR"), file=file)
        lines = "".join(f"count {count} loss {sys.argv[1]}\\n" for count in range(1, 10))
        os.write(1, lines.encode())
        """
    )
    report = r"count (?P<count>\d+) loss (?P<loss>\S+)"
    results = fit(
        Command(python(name, "{lr}"), checkpoints=True, report=report),
        {"lr": tune.grid_search([4, 3, 2, 1])},
        metric="loss",
        mode="min",
        max_concurrent_trials=1,
        scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    )
    assert not results.errors
    counts = [list(result.metrics_dataframe["count"]) for result in results]
    assert all(count == [*range(1, len(count) + 1)] for count in counts)
    assert max(map(len, counts)) == 9
    starts = Path("starts").read_text(encoding="utf-8").split()
    assert set(starts) == {"None"}
    assert len(starts) > len(counts)


def test_a_population_clones_what_programs_have_saved(script):
    results = fit(
        Command(python(script(COUNTING), "{lr}"), checkpoints=True),
        {"lr": tune.uniform(1, 9)},
        samples=4,
        metric="loss",
        mode="min",
        seed=1,
        scheduler=PopulationBasedTraining(
            perturbation_interval=2, hyperparam_mutations={"lr": tune.uniform(1, 9)}
        ),
    )
    assert not results.errors
    assert all(result.metrics["count"] == 9 for result in results)
    assert all(result.metrics["training_iteration"] == 9 for result in results)


def test_links_of_what_was_saved_are_links_when_it_is_continued(script):
    name = script(
        """
        import os, sys
        import tuner as tune
        os.chdir(os.environ["TUNER_CHECKPOINT_DIR"])
        if "TUNER_RESUME_DIR" in os.environ:
            assert os.readlink("latest") == "step1"
            with open("latest/state") as file:
                tune.report(loss=int(file.read()))
            sys.exit()
        os.mkdir("step1")
        with open("step1/state", "w") as file:
            file.write("7")
        os.symlink(os.path.abspath("step1"), "latest")
        tune.report(loss=1)
        sys.exit(1)
        """
    )
    command = Command(python(name, "{lr}"), checkpoints=True)
    assert losses(fit(command, {"lr": 1}, failures=1)) == [[1, 7]]


def test_a_copy_that_is_not_whole_is_no_checkpoint(script, monkeypatch, caplog):
    def fail(source, target):
        (target / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuner.command.program_run.copy_tree", fail)
    name = script(
        """
        import os
        from pathlib import Path
        import tuner as tune
        Path(os.environ["TUNER_CHECKPOINT_DIR"], "state").touch()
        tune.report(loss=1)
        """
    )
    command = Command(python(name, "{lr}"), checkpoints=True)
    [result] = fit(command, {"lr": 1}, executor="inline")
    assert "could not be copied, so this result has no checkpoint: [Errno 28]" in caplog.text
    assert result.metrics["loss"] == 1
    assert result.checkpoint is None


@pytest.fixture
def counting(script):
    script(COUNTING)
    script(
        """
        import os
        import sys
        from pathlib import Path
        import tuner as tune

        command = tune.Command([sys.executable, "train.py", "{lr}"], checkpoints=True)
        if __name__ == "__main__":
            Path("driver").write_text(str(os.getpid()))
            tune.Tuner(
                command,
                param_space={"lr": tune.grid_search([4, 3, 2, 1])},
                tune_config=tune.TuneConfig(metric="loss", mode="min"),
                run_config=tune.RunConfig(
                    name="exp", storage_path=Path("results").absolute(), verbose=0
                ),
            ).fit()
        """,
        "sweep.py",
    )
    script(
        """
        import os
        import sys
        from pathlib import Path
        import tuner as tune
        from sweep import command

        if __name__ == "__main__":
            Path("driver").write_text(str(os.getpid()))
            tune.Tuner.restore(sys.argv[1], command).fit()
        """,
        "restore.py",
    )
    return Command(python("train.py", "{lr}"), checkpoints=True)


def run_until_killed(where, *words):
    """Run a script whose driver a trial kills at some count; return its exit code."""
    environ = {**os.environ, "KILL_AT": where}
    return subprocess.run(python(*words), env=environ, check=False).returncode  # noqa: S603


def curves(results):
    return [
        frame[["training_iteration", "count", "loss"]].values.tolist()
        for frame in (result.metrics_dataframe for result in results)
    ]


def test_an_experiment_that_is_killed_twice_ends_as_if_it_had_not_been(counting, tmp_path):
    place = tmp_path / "results" / "exp"
    whole = tune.Tuner(
        counting,
        param_space={"lr": tune.grid_search([4, 3, 2, 1])},
        run_config=tune.RunConfig(name="whole", storage_path=tmp_path / "results", verbose=0),
    ).fit()
    assert run_until_killed("3:5", "sweep.py") == -signal.SIGKILL
    assert run_until_killed("2:8", "restore.py", place) == -signal.SIGKILL
    restored = tune.Tuner.restore(place, counting).fit()
    assert not restored.errors
    assert curves(restored) == curves(whole)
    for result in restored:
        assert not list(Path(result.path).glob(".tmp*"))


def test_a_machine_that_is_lost_is_continued_from_the_store(counting, tmp_path):
    url = f"file://{tmp_path}/store"
    space = {"lr": tune.grid_search([4, 3])}
    config = tune.RunConfig(name="exp", storage_path=url, local_dir=tmp_path / "local", verbose=0)
    tune.Tuner(
        counting, param_space=space, run_config=dataclasses.replace(config, stop={"count": 5})
    ).fit()
    shutil.rmtree(tmp_path / "local")
    results = tune.Tuner.restore(
        f"{url}/exp",
        counting,
        stop={"count": 9},
        local_dir=tmp_path / "other",
        resume_config=tune.ResumeConfig(finished="resume"),
    ).fit()
    assert [list(result.metrics_dataframe["count"]) for result in results] == [[*range(1, 10)]] * 2


def test_programs_run_on_the_nodes_of_a_cluster(counting):
    with FakeCluster({"a": {"cpu": 1}, "b": {"cpu": 1}}) as cluster:
        results = tune.Tuner(
            counting,
            param_space={"lr": tune.grid_search([2, 1])},
            run_config=tune.RunConfig(
                name="exp", storage_path=Path.cwd() / "results", cluster=cluster, verbose=0
            ),
        ).fit()
    assert not results.errors
    assert all(result.metrics["count"] == 9 for result in results)


# What is recorded of a command, and what is refused.


def test_a_command_is_made_again_from_its_record(tmp_path):
    command = Command(
        "python train.py {args}",
        report=r"loss (?P<loss>\S+)",
        environ={"A": "b"},
        cwd=tmp_path,
        grace_s=1,
        resources={"cpu": 2},
    )
    record = json.loads(json.dumps(command.as_record()))
    assert Command.from_record(record).as_record() == record


def test_secrets_are_not_recorded(monkeypatch):
    command = Command(
        "python train.py --api-key abcdefgh {args}", environ={"WANDB_API_KEY": "topsecret"}
    )
    record = command.as_record()
    assert "abcdefgh" not in json.dumps(record)
    assert "topsecret" not in json.dumps(record)
    with pytest.raises(ValueError, match=r"held what looked like a secret"):
        Command.from_record(record)
    record["command"] = ["python", "train.py"]
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ValueError, match=r"variable WANDB_API_KEY .* set it in the environment"):
        Command.from_record(record)
    monkeypatch.setenv("WANDB_API_KEY", "topsecret")
    assert Command.from_record(record).as_record()["environ"] == {"WANDB_API_KEY": None}
