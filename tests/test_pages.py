"""Documentation pages: code runs and prints what is shown, commands and links are valid."""

import ast
import doctest
import importlib.util
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
GUIDES = sorted(set(TEXTS) - {"CHANGELOG.md"})
FENCED = r"^```(?P<language>{})\n(?P<code>.*?)^```$"
BLOCK = re.compile(FENCED.format("[a-z]*"), flags=re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(
    FENCED.format("python|diff") + r"(?:\s*^```text\n(?P<printed>.*?)^```$)?",
    flags=re.DOTALL | re.MULTILINE,
)
PROGRAMS = {
    page: list(PROGRAM.finditer(text)) for page, text in TEXTS.items() if PROGRAM.search(text)
}
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
MARK = "---- block {} of {}"
KNOWN_PROGRAMS = {
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


def code_of(program):
    """Return a block as Python; for a diff, the changed code."""
    if program["language"] == "python":
        return program["code"]
    return "".join(
        line[1:] for line in program["code"].splitlines(keepends=True) if line[:1] != "-"
    )


def anchors_of(text):
    """Return what the headings of a page can be linked by, as repository browsers name them."""
    names = []
    for heading in re.findall(r"^#+ +(.+?) *$", BLOCK.sub("", text), flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return names


@pytest.mark.parametrize("page", PROGRAMS)
def test_code_on_the_pages_runs_and_prints_what_they_say(page, tmp_path):
    """All blocks of a page are one script, whose home is a fresh directory."""
    programs = PROGRAMS[page]
    marks = [MARK.format(number, page) for number in range(len(programs))]
    script = tmp_path / f"{Path(page).stem}_page.py"
    parts = (
        f"print({mark!r}, flush=True)\n{code_of(program)}"
        for mark, program in zip(marks, programs, strict=True)
    )
    script.write_text("\n\n".join(parts), encoding="utf-8")
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "MPLBACKEND": "agg",
        "COLUMNS": "120",
    }
    done = subprocess.run(  # noqa: S603  (our own interpreter and page)
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    if "\nclass Test" in script.read_text():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", script.name]
        tests = subprocess.run(  # noqa: S603  (as above)
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert tests.returncode == 0, tests.stdout
    rest = done.stdout
    for number, program in enumerate(programs):
        _, _, rest = rest.partition(marks[number] + "\n")
        printed = rest.partition(marks[number + 1] + "\n")[0] if number + 1 < len(marks) else rest
        if "best:" in program["code"]:
            assert "best:" in printed
        if program["printed"]:
            wanted, flags = program["printed"], doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(wanted, printed, flags), (
                f"{marks[number]} says\n{wanted}\nand prints\n{printed}"
            )


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


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_on_the_pages_name_existing_programs_and_files(page, command):
    check_command(command)


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


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_on_the_pages_lead_somewhere(page, link):
    file, _, anchor = link.partition("#")
    target = (ROOT / page).parent.joinpath(file).resolve() if file else ROOT / page
    assert target.exists()
    if anchor:
        assert anchor in anchors_of(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TEXTS)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page):
    tables = re.findall(r"(?:^\|.*\|$\n?)+", BLOCK.sub("", TEXTS[page]), flags=re.MULTILINE)
    cells = [[len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()] for table in tables]
    assert [
        table.splitlines()[0]
        for table, counts in zip(tables, cells, strict=True)
        if len(set(counts)) > 1
    ] == []


def test_every_guide_can_be_reached_from_the_index():
    linked = {link.partition("#")[0] for page, link in LINKS if page == "docs/index.md"}
    assert (
        sorted(
            path.name for path in ROOT.glob("docs/*.md") if path.name not in {"index.md", *linked}
        )
        == []
    )


@pytest.mark.parametrize("statement", IMPORTS)
def test_imports_named_on_the_pages_work(statement):
    for node in ast.parse(statement).body:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            assert [importlib.import_module(name).__name__ for name in names] == names
        else:
            module = importlib.import_module(node.module)
            assert [name for name in names if not hasattr(module, name)] == []


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
            text.replace("architecture.py: moves of a trial", "architecture.py: moves")
        )
