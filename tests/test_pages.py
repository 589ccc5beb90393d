"""What the documentation pages name exists: commands, links, imports, cells of tables."""

import ast
import functools
import importlib.util
import itertools
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.pages import BLOCK, ROOT, TEXTS

COMMANDS = [
    (page, command)
    for page, text in TEXTS.items()
    for block in BLOCK.finditer(text)
    if block["language"] == "sh"
    for line in block["code"].replace("\\\n", " ").splitlines()
    for command in re.split(r" && | \| ", line)
    if line.strip() and not line.startswith("#")
]
LINKS = [
    (page, link)
    for page, text in TEXTS.items()
    for link in dict.fromkeys(re.findall(r"\]\((?!https?:)([^)\s]+)\)", BLOCK.sub("", text)))
]
IMPORTS = sorted(
    set(
        re.findall(
            r"`((?:from|import) (?:tuner|schedulers|searchers)\b[^`]*)`", "".join(TEXTS.values())
        )
    )
)
KNOWN_PROGRAMS = {
    "cc",
    "cd",
    "eval",
    "git",
    "jq",
    "kill",
    "ls",
    "nohup",
    "nox",
    "optuna-dashboard",
    "pre-commit",
    "ruff",
    "source",
    "tail",
    "tensorboard",
}


@functools.cache
def anchors_of(path):
    """Return what the headings of a page can be linked by, as repository browsers name them."""
    names = []
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return names


def check_command(command):
    """Raise if a shell command names a program, module, file or extra that does not exist."""
    words = list(
        itertools.dropwhile(re.compile(r"[A-Z_]+=").match, shlex.split(command, comments=True))
    )
    program, arguments = Path(words[0]).name, words[1:]
    if program in {"python", "python3"} and arguments[:1] == ["-m"]:
        assert importlib.util.find_spec(arguments[1]), arguments[1]
    elif program in {"python", "python3", "pytest"}:
        files = [
            argument
            for argument in arguments
            if argument.endswith((".py", "/")) or argument.startswith("tests")
        ]
        assert [name for name in files if "/" in name and not (ROOT / name).exists()] == []
    elif program == "pip":
        extras = set(re.findall(r"\w+", "".join(re.findall(r"\[(.*?)\]", command))))
        assert (
            extras
            <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
                "optional-dependencies"
            ].keys()
        )
    elif program == "tuner":
        assert importlib.util.find_spec("tuner.cli"), "there is no command line yet"
    else:
        assert program in KNOWN_PROGRAMS


def test_commands_on_the_pages_name_existing_programs_and_files():
    wrong = []
    for page, command in COMMANDS:
        try:
            check_command(command)
        except (AssertionError, ModuleNotFoundError) as error:
            wrong.append((page, command, str(error)))
    assert wrong == []


@pytest.mark.parametrize(
    "command",
    [
        "python -m nonsense",
        "python examples/nonsense.py",
        'pip install "tuner-hpo[nonsense]"',
        "nonsense",
    ],
)
def test_a_command_that_names_nothing_is_detected(command):
    with pytest.raises((AssertionError, ModuleNotFoundError)):
        check_command(command)


def leads_somewhere(page, link):
    """Return whether the file of a link exists, and has the heading that the link names."""
    file, _, anchor = link.partition("#")
    target = (ROOT / page).parent.joinpath(file).resolve() if file else ROOT / page
    if not target.exists():
        return False
    return not anchor or anchor in anchors_of(target)


def test_links_on_the_pages_lead_somewhere():
    assert [(page, link) for page, link in LINKS if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("link", ["nothing.md", "#nothing", "index.md#nothing"])
def test_a_link_that_leads_nowhere_is_detected(link):
    assert leads_somewhere("docs/tuning.md", "index.md")
    assert not leads_somewhere("docs/tuning.md", link)


def uneven_tables(text):
    """Return the heads of the tables some of whose rows have another number of cells."""
    tables = re.findall(r"(?:^\|.*\|$\n?)+", BLOCK.sub("", text), flags=re.MULTILINE)
    cells = [[len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()] for table in tables]
    return [
        table.splitlines()[0]
        for table, counts in zip(tables, cells, strict=True)
        if len(set(counts)) > 1
    ]


def test_rows_of_a_table_have_as_many_cells_as_its_head():
    uneven = {page: heads for page, text in TEXTS.items() if (heads := uneven_tables(text))}
    assert uneven == {}
    assert uneven_tables("| a | b |\n|---|---|\n| c |\n") == ["| a | b |"]


def test_every_guide_can_be_reached_from_the_index():
    linked = {link.partition("#")[0] for page, link in LINKS if page == "docs/index.md"}
    assert (
        sorted(
            path.name for path in ROOT.glob("docs/*.md") if path.name not in {"index.md", *linked}
        )
        == []
    )


def missing_names(statement):
    """Return what an import statement names that does not exist."""
    missing = []
    for node in ast.parse(statement).body:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            missing += [name for name in names if importlib.import_module(name).__name__ != name]
        else:
            module = importlib.import_module(node.module)
            missing += [name for name in names if not hasattr(module, name)]
    return missing


def test_imports_named_on_the_pages_work():
    assert {each: missing for each in IMPORTS if (missing := missing_names(each))} == {}
    assert missing_names("from tuner import Tuner, nonsense") == ["nonsense"]


def test_the_generated_parts_of_the_architecture_page_match_the_code():
    generator = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    text = TEXTS["docs/architecture.md"]
    assert generator["page"](text) == text, "run python docs/architecture.py --write"


def test_an_outdated_architecture_page_is_detected():
    generator = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    text = TEXTS["docs/architecture.md"]
    assert (
        generator["page"](text.replace("PENDING --> RUNNING: start", "PENDING --> ERROR: start"))
        == text
    )
    with pytest.raises(ValueError, match="each of the parts"):
        generator["page"](
            text.replace("architecture.py: states of a trial", "architecture.py: states")
        )
