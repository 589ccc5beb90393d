"""Why programs fail, under launchers too."""

import pytest

from tuner.command.failure_text import cause_of_failure, end_of_output

OF_SCRIPT = """\
loading
Traceback (most recent call last):
  File "train.py", line 2, in <module>
    raise ValueError("lr too large: 1")
ValueError: lr too large: 1"""
OF_TORCHRUN = """\
E1128 00:34:54 28932 torch/distributed/elastic/api.py:1002] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
Root Cause (first observed failure):
[0]:
  traceback : {}
============================================================"""  # noqa: W291  (as it is printed)
OF_ACCELERATE = """\
Traceback (most recent call last):
  File "accelerate", line 8, in <module>
subprocess.CalledProcessError: Command '['python3', 'train.py']' returned non-zero exit status 1."""
RANKS = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "train.py", line 2, in <module>
[rank0]:   File "train.py", line 2, in <module>
[rank1]: ValueError: lr too large: 1
[rank0]: ValueError: lr too large: 1"""
CHAINED = """\
Traceback (most recent call last):
  File "train.py", line 2, in <module>
KeyError: 'lr'

During handling of the above exception, another exception occurred:

"""


@pytest.mark.parametrize(
    "text",
    [
        OF_SCRIPT,
        f"{CHAINED}{OF_SCRIPT}",
        f"{OF_SCRIPT}\n{OF_TORCHRUN.format('see ...')}",
        f"{OF_SCRIPT}\n{OF_ACCELERATE}",
        f"{RANKS}\n{OF_TORCHRUN.format('see ...')}",
        f"{OF_SCRIPT}\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete trace.",
    ],
)
def test_the_exception_of_the_program_is_the_cause(text):
    assert cause_of_failure(text.splitlines()) == "ValueError: lr too large: 1"
    assert "ValueError: lr too large: 1" in end_of_output(text.splitlines())
    assert "ChildFailedError" not in end_of_output(text.splitlines())


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("usage: train.py\ntrain.py: error: unknown --lr\n", "train.py: error: unknown --lr"),
        ("a\nbad data\n=====", "bad data"),
        ("Traceback (most recent call last):\nKeyboardInterrupt", "KeyboardInterrupt"),
        (
            OF_TORCHRUN.format("Signal 9 (SIGKILL) received by PID 7"),
            "traceback : Signal 9 (SIGKILL) received by PID 7",
        ),
        ("", ""),
    ],
)
def test_where_no_exception_of_its_own_is_shown_the_last_words_are_the_cause(text, cause):
    assert cause_of_failure(text.splitlines()) == cause
    assert end_of_output(text.splitlines()) == "\n".join(text.splitlines())


def test_of_a_long_output_the_end_is_shown():
    assert end_of_output([str(number) for number in range(90)]).splitlines()[0] == "50"
