"""Commands with placeholders."""

import shlex
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.command.template import Template, as_text, hydra_text, variable_names

SPACE = {
    "lr": tune.loguniform(1e-5, 1e-1),
    "model": {"width": tune.choice([64, 128]), "act": "relu"},
}
CONFIG = {"lr": 1e-05, "model": {"width": 64, "act": "relu"}}


def filled(line, config=CONFIG, **facts):
    return Template(shlex.split(line)).filled(config, {"resume_dir": None, **facts})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train --lr {lr}", ["train", "--lr", "1e-05"]),
        ("train lr={lr}x", ["train", "lr=1e-05x"]),
        ("train {model.width} {model/act}", ["train", "64", "relu"]),
        ("train {model}", ["train", '{"width": 64, "act": "relu"}']),
        ("train {args}", ["train", "--lr", "1e-05", "--model.width", "64", "--model.act", "relu"]),
        ("train {lr} {args}", ["train", "1e-05", "--model.width", "64", "--model.act", "relu"]),
        ("train {model} {args}", ["train", '{"width": 64, "act": "relu"}', "--lr", "1e-05"]),
        ("train {hydra}", ["train", "lr=1e-05", "model.width=64", "model.act=relu"]),
        ("train --id {trial_id}", ["train", "--id", "t00003"]),
        ("awk '{print $1}' '{{lr}}' '${lr}' {}", ["awk", "{print $1}", "{lr}", "${lr}", "{}"]),
        ("train --resume {resume_dir} --lr {lr}", ["train", "--lr", "1e-05"]),
        ("train --resume={resume_dir} -v {lr}", ["train", "-v", "1e-05"]),
    ],
)
def test_placeholders_are_filled_in(line, words):
    assert filled(line, trial_id="t00003") == words


def test_an_option_stays_where_its_value_is_there():
    assert filled("train --resume {resume_dir}", resume_dir="/c") == ["train", "--resume", "/c"]


def test_a_parameter_that_a_condition_has_left_out_is_left_out_with_its_option():
    assert filled("train --momentum {momentum} --lr {lr}") == ["train", "--lr", "1e-05"]
    assert filled("train {args}", {"lr": 1, "momentum": None}) == ["train", "--lr", "1"]


def test_a_value_that_looks_like_an_option_is_joined_to_its_own():
    config = {"lr": -0.1, "sign": "-x"}
    assert filled("train {args}", config) == ["train", "--lr", "-0.1", "--sign=-x"]


def test_only_an_option_that_is_written_so_is_left_out_with_its_value():
    config = {"lr": -1, "amp": "--amp", "quick": None}
    assert filled("train --lr {lr} {quick}", config) == ["train", "--lr", "-1"]
    assert filled("train {amp} {quick} {args}", config) == ["train", "--amp", "--lr", "-1"]


def test_parameters_come_before_what_the_trial_knows():
    assert filled("train {seed}", {"seed": 7}, seed="42") == ["train", "7"]
    assert filled("train {args}", {"args": "x"}) == ["train", "x"]


def test_values_are_quoted_in_a_line_for_a_shell():
    template = Template(["train --name {name} {args} | tee ${HOME}"], is_line=True)
    assert template.filled({"name": "a b; rm x", "lr": 1}, {}) == [
        "train --name 'a b; rm x' --lr 1 | tee ${HOME}"
    ]
    Template(["train --x={args}"], is_line=True).check({"lr": 1})


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("{0} {v}", ["{0}", "V"]),
        ('{0} "{v}" x', ["{0}", "V", "x"]),
        ("{0} '{v}' x", ["{0}", "V", "x"]),
        ('{0} "-{v}-" {v}', ["{0}", "-V-", "V"]),
        ("""{0} "it's {v}" '"{v}"' """, ["{0}", "it's V", '"V"']),
        (r"""{0} \' \" "\"{v}" """, ["{0}", "'", '"', '"V']),
        (r"""{0} '\' {v} """, ["{0}", "\\", "V"]),
        ('{0} "$(printf %s. {v} "{v}")"', ["{0}", "V.V."]),
        ("{0} # don't\n{0} {v}", ["{0}", "{0}", "V"]),
        ("{0} a#b'{v}'", ["{0}", "a#bV"]),
        ("({0} {v}); {0} '{v}'", ["{0}", "V", "{0}", "V"]),
    ],
)
@pytest.mark.parametrize("value", ["0.1", "a b", "$(id)", "`id` $HOME", "it's \"", "\\ \\'", "#()"])
def test_a_value_is_the_same_word_wherever_it_stands_in_a_line_for_a_shell(line, printed, value):
    [filled_in] = Template([line.replace("{0}", "printf '<%s>' x")], is_line=True).filled(
        {"v": value}, {}
    )
    shell = subprocess.run(  # noqa: S603  (what is in quotes is a shell's matter)
        ["/bin/sh", "-c", filled_in], capture_output=True, text=True, check=True
    )
    wanted = [one.replace("{0}", "x").replace("V", value) for one in printed]
    assert shell.stdout == "".join(f"<{one}>" for one in wanted)


def test_several_words_in_quotes_are_words_of_an_inner_shell():
    template = Template(["sh -c 'train {args}'"], is_line=True)
    assert template.filled({"lr": 1, "width": 2}, {}) == ["sh -c 'train --lr 1 --width 2'"]
    [line] = template.filled({"name": "a b"}, {})
    assert shlex.split(shlex.split(line)[2]) == ["train", "--name", "a b"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "train {rl} {args}",
            r"\{rl\} names no parameter .*'lr', 'model.act'.*; did you mean \{lr\}",
        ),
        ("train {lr} {model.with} {args}", r"did you mean \{model.width\}\?"),
        ("train {qqqq} {args}", r"write \{\{qqqq\}\} for braces"),
        ("train {lr}", r"'model.width' is used nowhere .*write \{model.width\} or \{args\}"),
        ("train --x={args}", "must be a word of its own"),
        ("train", "'lr' is used nowhere"),
    ],
)
def test_what_does_not_fit_the_space_is_refused(line, said):
    with pytest.raises(ValueError, match=said):
        Template(shlex.split(line)).check(SPACE)


@pytest.mark.parametrize(
    "line",
    ["train {args}", "train {json}", "train {lr} {model}", "train {lr} {model.width} {model.act}"],
)
def test_what_uses_all_parameters_fits(line):
    Template(shlex.split(line)).check(SPACE)


def test_parameters_may_be_unused_where_that_is_said():
    Template(["train"]).check(SPACE, allow_unused=True)
    with pytest.raises(ValueError, match="names no parameter"):
        Template(["train", "{rl}"]).check(SPACE, allow_unused=True)


def test_a_space_of_flat_names_with_dots_fits_as_well():
    Template(["train", "{model.width}"]).check({"model.width": tune.choice([1, 2])})
    assert filled("train {model.width}", {"model.width": 2}) == ["train", "2"]


@given(st.text(max_size=8), st.floats(allow_nan=False), st.integers(), st.booleans())
def test_a_word_holds_the_value_whatever_it_is(text, number, count, truth):
    config = {"text": text, "number": number, "count": count, "truth": truth}
    words = filled("x {text} {number} {count} {truth}", config)
    assert words == ["x", text, str(number), str(count), str(truth)]
    line = Template(["printf {text}"], is_line=True).filled({"text": text}, {})
    assert shlex.split(line[0]) == ["printf", text]


def test_values_of_numpy_are_plain_numbers():
    assert as_text(np.float64(0.1)) == "0.1"
    assert as_text(np.array([1, 2])) == "[1, 2]"
    assert hydra_text(np.int64(3)) == "3"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        ("adam", "adam"),
        ("true", "'true'"),
        ("1e3", "'1e3'"),
        ("it's", r"'it\'s'"),
        ("back\\", r"'back\\'"),
        ("", "''"),
        ([1, "a,b"], "[1,'a,b']"),
    ],
)
def test_hydra_reads_back_what_was_meant(value, text):
    assert hydra_text(value) == text


def test_two_parameters_must_not_be_one_variable():
    assert variable_names(["model/width", "lr"]) == {
        "model/width": "TUNER_PARAM_MODEL_WIDTH",
        "lr": "TUNER_PARAM_LR",
    }
    with pytest.raises(ValueError, match="'lr' and 'LR' would both be the variable TUNER_PARAM_LR"):
        variable_names(["lr", "LR"])
