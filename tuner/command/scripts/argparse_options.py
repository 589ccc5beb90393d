"""Options that a script declares by argparse, or a library with the same calls."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from .python_source import UNKNOWN, Constants, in_order, last_name
from .script_option import Option, Takes, first_long, kind_of, text_of

_FLAGS: Final = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
)


@final
@dataclass(slots=True)
class ArgparseOptions:
    """Reads calls of ``add_argument``, of parsers and groups of any name."""

    constants: Constants
    options: list[Option] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    _commands_of: dict[str, str] = field(default_factory=dict)
    """Subcommands by the names of their parsers and of groups in these."""

    def read(self, tree: ast.Module) -> None:
        """Read a file."""
        defaults: dict[str, Any] = {}
        for node in in_order(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    self._assign(name, call)
                case ast.Call(func=ast.Attribute(attr="add_argument")):
                    self._add(node)
                case ast.Call(func=ast.Attribute(attr="set_defaults")):
                    defaults |= {
                        keyword.arg: self.constants.value(keyword.value)
                        for keyword in node.keywords
                        if keyword.arg
                    }
        for index, option in enumerate(self.options):
            given = defaults.get(option.name.replace("-", "_"), option.default)
            self.options[index] = replace(option, default=given)

    def _assign(self, name: str, call: ast.Call) -> None:
        match call.func:
            case ast.Attribute(attr="add_parser"):
                command = self.constants.value(call.args[0]) if call.args else UNKNOWN
                if isinstance(command, str):
                    self._commands_of[name] = command
                    self.commands.append(command)
            case ast.Attribute(
                value=ast.Name(id=parser),
                attr="add_argument_group" | "add_mutually_exclusive_group",
            ):
                self._commands_of[name] = self._commands_of.get(parser, "")
            case _:
                if last_name(call.func).endswith(("Parser", "parser")):
                    self._commands_of[name] = ""

    def _add(self, call: ast.Call) -> None:
        names = [self.constants.value(argument) for argument in call.args]
        if not names or not all(isinstance(name, str) for name in names):
            self.unread.append(call.lineno)
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        action = last_name(given.get("action")) or self.constants.value(given.get("action"))
        if action in ("help", "version"):
            return
        flag = first_long(names) if names[0].startswith("-") else ""
        default = self.constants.value(given.get("default"))
        choices = self.constants.value(given.get("choices"))
        if choices is not None and not isinstance(choices, tuple):
            choices = UNKNOWN
        converter = last_name(given.get("type"))
        nargs = self.constants.value(given.get("nargs"))
        takes = _taken(action, nargs)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        self.options.append(
            Option(
                name=(flag or names[0]).lstrip("-"),
                flag=flag,
                kind=kind_of(converter, default, choices),
                default=default,
                choices=choices,
                takes=takes,
                off_flag=f"--no-{flag.lstrip('-')}" if takes is Takes.OR_NO else "",
                is_required=self.constants.value(given.get("required")) is True
                or (not flag and nargs not in ("?", "*")),
                truth_of_text=converter == "bool",
                help=text_of(self.constants.value(given.get("help"))),
                command=self._commands_of.get(owner.id, "") if isinstance(owner, ast.Name) else "",
                line=call.lineno,
            )
        )


def _taken(action: Any, nargs: Any) -> Takes:
    if action == "BooleanOptionalAction":
        return Takes.OR_NO
    if action in _FLAGS:
        return Takes.NOTHING
    is_one = nargs is None or nargs in ("?", 1)
    return Takes.VALUE if is_one and action not in ("append", "extend") else Takes.VALUES
