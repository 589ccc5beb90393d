"""Commands of W&B's sweep files: their macros as words with our own placeholders."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

from tuner.command.scripts.python_source import is_number

from .sweep_file import Section
from .wandb_parameters import WandbParameter, nested_in

_DEFAULT: Final = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO: Final = re.compile(r"\$\{([\w:]+)\}")
_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f]*')


@final
class WandbCommand:
    """The command of a sweep file.

    Args:
        keys: What the file contains.
        parameters: Its parameters.

    Attributes:
        words: The words of the command, with placeholders.
        parameters: The parameters, marked where they have become flags.
        remarks: What is different here.

    Raises:
        ValueError: If something in it has no counterpart, or is wrong; begins with file and line.
    """

    def __init__(self, keys: Section, parameters: Sequence[WandbParameter]) -> None:
        self._keys = keys
        self.parameters = list(parameters)
        self.remarks: list[str] = []
        self.words: list[str] = []
        given = keys.get("command", list(_DEFAULT))
        if not isinstance(given, list) or not given:
            raise self._refusal(f"must be a list of words, got {given!r:.60}; write - before each")
        found = [str(word) for word in given]
        for word, following in zip(found, [*found[1:], ""], strict=True):
            macro = _MACRO.fullmatch(word)
            if macro is None:
                self.words.append(_escaped(word))
            elif macro[1] == "env":
                # It is needed to set variables alone: a program is found without it.
                self.words += ["env"] if re.match(r"\w+=", following) else []
            else:
                self.words += self._expanded(macro[1])
        if not any(_MACRO.fullmatch(word) and "args" in word for word in found):
            raise self._refusal(
                "must have ${args}, or another macro for the parameters, since nothing fills "
                "wandb.config here"
            )

    def _refusal(self, what: str) -> ValueError:
        return self._keys.refusal("command", f"command {what}")

    def _expanded(self, macro: str) -> list[str]:
        if macro in _FORMS:
            form = _FORMS[macro]
            return [word for one in self.parameters for word in form(one)]
        match macro:
            case "interpreter":
                return ["python"]
            case "program":
                return [_escaped(self._program())]
            case "args_no_boolean_flags":
                return self._with_flags()
            case "args_json_file":
                return ["{json}"]
            case "args_json":
                return [self._json(self._keys["parameters"], "")]
        close = difflib.get_close_matches(macro, _MACROS, n=1)
        hint = f"did you mean ${{{close[0]}}}?" if close else f"there are {', '.join(_MACROS)}"
        raise self._refusal(f"has the unknown macro ${{{macro}}}; {hint}")

    def _program(self) -> str:
        program = self._keys.get("program")
        if not isinstance(program, str) or not program:
            raise self._keys.refusal(
                "program", f"program must be the path of a script, got {program!r}; name it"
            )
        return program

    def _with_flags(self) -> list[str]:
        """Return words in which true stands for a flag, and false for nothing."""
        words: list[str] = []
        flags: list[str] = []
        for place, one in enumerate(self.parameters):
            are_flags = [isinstance(value, bool) for value in one.values]
            if not any(are_flags):
                words += _FORMS["args"](one)
                continue
            if not all(are_flags):
                raise one.refusal(
                    "${args_no_boolean_flags} needs true and false alone, or neither", "values"
                )
            self.parameters[place] = replace(one, is_flag=True)
            flags.append(f"{{{one.own_name}}}")
            self.remarks.append(
                f"{one.name}: true is written '--{one.name}' here, and false null, also in results."
            )
        if flags and not words and self.words and self.words[-1].startswith("-"):
            raise self._refusal(
                f"has ${{args_no_boolean_flags}} behind {self.words[-1]!r}, which would be left "
                "out together with a flag that is false; put it first"
            )
        return [*words, *flags]

    def _json(self, space: Section, above: str) -> str:
        """Return the text that becomes the configuration as JSON."""
        inner: list[str] = []
        for key, value in space.items():
            if (nested := nested_in(value)) is not None:
                inner.append(f'"{key}": {self._json(nested, f"{above}{key}.")}')
                continue
            one = WandbParameter(f"{above}{key}", space, key)
            are_texts = bool(one.values) and all(
                isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) for value in one.values
            )
            if not are_texts and not all(map(is_number, one.values)):
                raise one.refusal(
                    "${args_json} needs numbers alone, or plain texts alone; write "
                    "${args_json_file}, and have the program read that file"
                )
            quote = '"' if are_texts else ""
            inner.append(f'"{key}": {quote}{{{one.name}}}{quote}')
        return f"{{{{{', '.join(inner)}}}}}"


_FORMS: Final[Mapping[str, Callable[[WandbParameter], Iterable[str]]]] = {
    "args": lambda one: [f"--{one.name}={{{one.own_name}}}"],
    "args_no_equals": lambda one: [f"--{one.name}", f"{{{one.own_name}}}"],
    "args_no_hyphens": lambda one: [f"{one.name}={{{one.own_name}}}"],
    "args_append_hydra": lambda one: [f"+{one.name}={{{one.own_name}}}"],
    "args_override_hydra": lambda one: [f"++{one.name}={{{one.own_name}}}"],
}
"""What macros write of each parameter."""
_MACROS: Final = (
    "env", "interpreter", "program", *_FORMS, "args_no_boolean_flags", "args_json",
    "args_json_file",
)  # fmt: skip


def _escaped(word: Any) -> str:
    """Return a word without placeholders."""
    return str(word).replace("{", "{{").replace("}", "}}")
