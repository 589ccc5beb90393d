"""The first sweep file for a program: what is known of a script, and what the user has to add."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tuner.command.scripts.python_source import parse_file
from tuner.command.scripts.script_option import Option
from tuner.command.scripts.script_options import Script, read_script
from tuner.command.scripts.script_reports import Reporting, Way, reporting_of
from tuner.command.template import FACTS, LISTS, Template

from .space_text import written
from .suggested_domains import Suggestion, domain_for_name, suggestion_for
from .sweep_template import Entry, Paragraph, as_toml, as_yaml

_EXAMPLE: Final = "loguniform(1e-5, 1e-1)"
_NAMES_OF_LIBRARIES: Final = {
    "hydra": "optimizer.lr",
    "lightning": "model.learning_rate",
    "jsonargparse": "model.learning_rate",
    "transformers": "learning_rate",
    "absl": "learning_rate",
}
"""What a learning rate is called as a rule, by the library that reads the command line."""
_TRAINING: Final = ("train", "fit", "run", "main", "tune")
_MAX_HELP: Final = 56
_MAX_LENGTH: Final = 88
_DEFAULT_IN_HELP: Final = (
    r"\s*[\[(](?:[^\])]*default[^\])]*|\.\.\.)[\])]",
    r"[,;.]?\s*\bdefaults?( is| to|:|=)\s*\S+",
)
_NUM_SAMPLES: Final = 30
_DOMAINS: Final = (
    "Domains: uniform(0, 1), loguniform(1e-5, 1e-1), randint(1, 10), choice(a, b), grid(1, 2, 3);"
)


@dataclass(slots=True)
class _Draft:
    """What becomes the file."""

    words: list[str]
    space: list[Entry] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)
    length: Option | None = None
    is_example: bool = False


def first_sweep(
    script: Path | None, command: Sequence[str] = (), *, file: str = "sweep.yaml"
) -> str:
    """Return the text of a sweep file for a program.

    Args:
        script: A Python script, which is read and not run; None for another program.
        command: The command to train with, possibly with placeholders; that of the script by
            default.
        file: The name of the file; TOML if it ends in ``.toml``.

    Raises:
        ValueError: If the script is no Python, or there is neither a script nor a command.
        OSError: If the script cannot be read.
    """
    if script is None and not command:
        raise ValueError("there must be a script or a command; write it after --")
    found = read_script(script) if script else Script()
    reporting = _reporting(found) if script else Reporting()
    draft = _draft(script, list(command), found)
    runs = f"tuner run {shlex.quote(file)}"
    head = [
        f"A search for the best parameters of {script or shlex.join(command)}.",
        "",
        f"  {runs} --dry-run   shows the first commands and starts nothing",
        f"  {runs}             searches; flags override keys, as in -n 100 --gpus 1",
        *([""] if draft.notes else []),
        *draft.notes,
    ]
    paragraphs = [
        _command(draft),
        _space(draft, found),
        _metric(reporting, is_script=script is not None),
        _search(draft, reporting),
        _OTHERS,
    ]
    return (as_toml if file.endswith(".toml") else as_yaml)(head, paragraphs)


def _reporting(found: Script) -> Reporting:
    """Return how the first of a script's files that tells metrics does so."""
    for file in found.files:
        if (reporting := reporting_of(parse_file(file))).way is not Way.NONE:
            return reporting
    return Reporting()


def _draft(script: Path | None, command: list[str], found: Script) -> _Draft:
    names = _placeholders(command)
    words = command or ["python", str(script)]
    draft = _Draft(words)
    own = "" if command else _training_command(found.commands)
    options = [one for one in found.options if one.command in ("", own)]
    suggestions = [suggestion_for(option) for option in options]
    by_name = {one.option.name: one for one in suggestions}
    for name in names:
        if name not in by_name:
            domain = domain_for_name(name) or "uniform(0, 1)"
            draft.space.append(Entry(name, domain, "TODO: its bounds"))
    if len(found.files) > 1:
        draft.notes.append(f"The options are those of {found.files[1]}, which the script imports.")
    if found.unread:
        lines = ", ".join(map(str, found.unread))
        draft.notes.append(f"Options with computed names are left out, see line {lines}.")
    if own:
        others = ", ".join(one for one in found.commands if one != own)
        draft.notes += [f"The subcommand is {own}; there are also: {others}."] if others else []
    _add_options(draft, suggestions, own, is_own=not command, named=frozenset(names))
    if not any(entry.is_active for entry in draft.space):
        name = _NAMES_OF_LIBRARIES.get(found.library, "lr")
        draft.space.insert(0, Entry(name, _EXAMPLE, "TODO: an example; name your own"))
        draft.is_example = True
    if found.library == "lightning" and not command and not found.commands:
        draft.words.append("fit")
    if not names:
        draft.words.append("{hydra}" if found.library == "hydra" else "{args}")
    return draft


def _placeholders(command: Sequence[str]) -> list[str]:
    """Return the parameters that a command names, in its order."""
    names = [
        name
        for word in command
        for name in re.findall(r"(?<![{$])\{([^\W\d][\w./-]*)\}", word)
        if name in Template([word]).names
    ]
    return [name for name in dict.fromkeys(names) if name not in (*LISTS, *FACTS)]


def _training_command(commands: Sequence[str]) -> str:
    """Return the subcommand that trains, empty if there are none."""
    named = [one for one in commands if one in _TRAINING]
    trains = [one for one in commands if "train" in one]
    return next(iter([*named, *trains, *commands]), "")


def _add_options(
    draft: _Draft,
    suggestions: Iterable[Suggestion],
    subcommand: str,
    *,
    is_own: bool,
    named: frozenset[str],
) -> None:
    """Add options to the space, and to the command those that `{args}` would not write."""
    before: list[str] = []
    behind: list[str] = []
    for one in suggestions:
        option = one.option
        if one.is_length and (draft.length is None or "epoch" in option.name):
            draft.length = option
        is_searched = not one.left_out and not option.is_positional
        words = before if subcommand and not option.command else behind
        if option.is_required and not is_searched:
            value = re.sub(r"\W+", "_", option.name).upper()
            words += [value] if option.is_positional else [option.flag, value]
            draft.todo.append(f"TODO: replace {value}, which the script requires")
            continue
        if is_searched and one.has_default:
            draft.defaults[option.name] = written(option.default)
        draft.space.append(_entry(one, is_searched=is_searched))
        is_written = option.flag == f"--{option.name}" and words is behind
        if is_searched and not is_written and option.name not in named:
            words += [option.flag, f"{{{option.name}}}"]
    if is_own:
        draft.words += [*before, *([subcommand] if subcommand else []), *behind]
    else:
        draft.todo.clear()


def _entry(one: Suggestion, *, is_searched: bool) -> Entry:
    option = one.option
    help_text = _short_help(option)
    default = "" if option.default is None or one.left_out else f"default {_value(option)}"
    shown: Any = one.domain
    if not one.domain:
        is_plain = isinstance(option.default, str | int | float)
        shown = option.default if is_plain else "..."
    note = "; ".join(filter(None, [one.left_out, help_text, default]))
    if len(f"{option.name}{shown}{note}") > _MAX_LENGTH:
        note = one.left_out or default or help_text
    return Entry(option.name, shown, note, is_active=is_searched)


def _value(option: Option) -> str:
    is_known = isinstance(option.default, str | int | float)
    return str(option.default) if is_known else "computed"


def _short_help(option: Option) -> str:
    """Return what an option says about itself, without its default."""
    text = re.sub(r"%\(\w+\)[sdfr]", "...", option.help).replace("%%", "%")
    for default in _DEFAULT_IN_HELP:
        text = re.sub(default, "", text, flags=re.IGNORECASE)
    text = text.strip(" .,;")
    return text if len(text) <= _MAX_HELP else f"{text[: _MAX_HELP - 3].rstrip()}..."


def _command(draft: _Draft) -> Paragraph:
    stands = {
        "{args}": "{args} becomes --NAME VALUE for each parameter of the space",
        "{hydra}": "{hydra} becomes NAME=VALUE for each parameter of the space",
    }
    last = draft.words[-1]
    entries = [Entry(note=one) for one in draft.todo]
    if draft.is_example:
        what = (
            "TODO: write the options as the program takes them, such as --lr {lr}, or let it read "
            "the file with the configuration that TUNER_CONFIG names."
        )
        entries.append(Entry(note=what))
    line = " ".join(draft.words)
    is_line = _split(line) == draft.words
    return [*entries, Entry("command", line if is_line else draft.words, stands.get(last, ""))]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _space(draft: _Draft, found: Script) -> Paragraph:
    what = "What is searched."
    if found.options:
        what += " Options that are not here, or commented out, keep the program's defaults."
    return [
        Entry(note=what),
        Entry(note=_DOMAINS),
        Entry(note="anything else is a constant."),
        Entry("space", tuple(draft.space)),
    ]


def _metric(reporting: Reporting, *, is_script: bool) -> Paragraph:
    metric = reporting.metric or "loss"
    todo = "" if reporting.metric else "TODO: the name of your metric"
    entries = [
        Entry(note="What trials are compared by, and how the program tells it."),
        Entry("metric", metric, todo),
        Entry("mode", reporting.mode, "min: less is better, max: more is"),
    ]
    match reporting.way:
        case Way.REPORT | Way.LINES:
            where = f" in line {reporting.line}" if reporting.line else ""
            return [*entries, Entry(note=f"It is told by {reporting.call}{where}.")]
        case Way.OUTPUT:
            patterns = list(reporting.patterns)
            note = f"finds it in what line {reporting.line} prints"
            return [
                *entries,
                Entry("report", patterns[0] if len(patterns) == 1 else patterns, note),
            ]
        case Way.CSV:
            what = (
                f"TODO: let the logger of line {reporting.line} write into the trial's own "
                'directory, os.environ.get("TUNER_TRIAL_DIR", "."), and name its file here.'
            )
            return [*entries, Entry(note=what), _REPORT_FILE]
        case Way.TRACKER:
            what = (
                f"TODO: line {reporting.line} tells it to {reporting.call} alone. Add beside it: "
                f'import tuner as tune; tune.report({{"{metric}": ...}})'
            )
            return [*entries, Entry(note=what)]
    return [*entries, *_ways(metric, is_script=is_script)]


def _ways(metric: str, *, is_script: bool) -> list[Entry]:
    """Return how a program can report, where nothing was found."""
    by_call = "call tune.report({...}) in it, or " if is_script else ""
    what = (
        f"TODO: say how the program reports: {by_call}write lines of JSON to the file that "
        "TUNER_REPORT names, or keep one of these lines, adapted:"
    )
    pattern = rf"{metric}[:=] *(?P<{metric}>\S+)"
    return [
        Entry(note=what),
        Entry("report", pattern, "finds it in the output", is_active=False),
        replace(_REPORT_FILE, is_active=False),
    ]


_REPORT_FILE: Final = Entry("report_file", "{trial_dir}/metrics.csv", "CSV or JSON lines")


def _search(draft: _Draft, reporting: Reporting) -> Paragraph:
    entries = [Entry("num_samples", _NUM_SAMPLES, "how many configurations to try")]
    if draft.defaults and not draft.is_example:
        points = [_nested(draft.defaults)]
        entries.append(Entry("points", points, "to begin with: the program's own defaults"))
    return [*entries, _scheduler(draft.length, reporting)]


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *above, last = name.split(".")
        inner = nested
        for step in above:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return nested


def _scheduler(length: Option | None, reporting: Reporting) -> Entry:
    is_known = length is not None and isinstance(length.default, int) and length.default > 1
    counts_steps = "step" in reporting.metrics and "epoch" not in reporting.metrics
    if length is not None and is_known and (("epoch" in length.name) is not counts_steps):
        max_t = Entry("max_t", length.default, f"a full training: the default of {length.flag}")
        return Entry("scheduler", (_ASHA, max_t))
    max_t = Entry("max_t", 27, "results of a full training: its epochs, as a rule")
    return Entry("scheduler", (_ASHA, max_t), is_active=False)


_ASHA: Final = Entry("type", "asha", "ends trials that are worse than most at the same point")
_OTHERS: Final = (
    Entry(note="Uncomment what you need."),
    Entry("name", "my-search", "by default that of the program and a date", is_active=False),
    Entry(
        "constraints",
        {"size_mb": "<= 4"},
        "what a reported metric has to keep in the best trial",
        is_active=False,
    ),
    Entry("cpus", 1, "CPUs of a trial", is_active=False),
    Entry("gpus", 1, "GPUs of a trial; 0.5 lets two share one", is_active=False),
    Entry("max_concurrent", 4, "how many trials run at a time", is_active=False),
    Entry("time_limit", "2h", "for the whole search", is_active=False),
    Entry("seed", 1, "makes the search repeatable", is_active=False),
    Entry(
        "checkpoints",
        value=True,
        note="it saves into TUNER_CHECKPOINT_DIR and resumes from TUNER_RESUME_DIR",
        is_active=False,
    ),
)
