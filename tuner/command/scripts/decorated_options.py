"""Options that a script declares for its functions: by decorators of click, or for typer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

from .python_source import (
    UNKNOWN,
    Constants,
    Unknown,
    dotted_name,
    imports,
    in_order,
    is_number,
    last_name,
)
from .script_option import Option, Takes, first_long, kind_of, text_of

_CLICK_TYPES: Final = {
    "INT": "int", "FLOAT": "float", "BOOL": "bool", "STRING": "str", "IntRange": "int",
    "FloatRange": "float", "Choice": "str", "Path": "path", "File": "path", "FileType": "path",
}  # fmt: skip


@final
class DecoratedOptions:
    """Reads the options of functions: decorators of click, and arguments as typer reads them."""

    def __init__(self, constants: Constants, tree: ast.Module) -> None:
        self.options: list[Option] = []
        self.commands: list[str] = []
        self._constants = constants
        self._is_typer = imports(tree, "typer")
        self._is_click = imports(tree, "click") or not self._is_typer
        self._run = {
            argument.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and dotted_name(node.func) == "typer.run"
            for argument in node.args
            if isinstance(argument, ast.Name)
        }

    def read(self, tree: ast.Module) -> None:
        """Read a file."""
        functions = [
            node
            for node in in_order(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        names: list[str] = []
        for node in functions:
            calls = [(last_name(one), one) for one in node.decorator_list]
            command = next((one for name, one in calls if name == "command"), None)
            is_root = not isinstance(command, ast.Call | ast.Attribute) or _is_of_library(command)
            if self._is_typer and (node.name in self._run or command or _has(calls, "callback")):
                found = list(self._typer_options(node))
            elif self._is_click:
                found = list(self._click_options(node))
            else:
                continue
            own = "" if command is None or is_root else self._command_name(node, command)
            if own:
                names.append(own)
            self.options += [replace(option, command=own) for option in found]
        # A single command of typer is the program itself.
        if self._is_typer and len(names) == 1:
            self.options = [replace(option, command="") for option in self.options]
            names = []
        self.commands = names

    def _command_name(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, command: ast.expr | None
    ) -> str:
        if isinstance(command, ast.Call):
            named = [one.value for one in command.keywords if one.arg == "name"] or command.args
            given = self._constants.value(named[0]) if named else None
            if isinstance(given, str):
                return given
        return node.name.replace("_", "-")

    def _click_options(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Option]:
        for one in node.decorator_list:
            name = last_name(one)
            if not isinstance(one, ast.Call) or name not in ("option", "argument"):
                continue
            names = [self._constants.value(argument) for argument in one.args]
            names = [text for text in names if isinstance(text, str)]
            given = {keyword.arg: keyword.value for keyword in one.keywords if keyword.arg}
            if names:
                yield self._option(names, given, one.lineno, is_positional=name == "argument")

    def _option(
        self,
        names: Sequence[str],
        given: Mapping[str, ast.expr],
        line: int,
        *,
        is_positional: bool = False,
    ) -> Option:
        """Return the option that names and arguments of click's or typer's declare."""
        written = first_long([name for name in names if name.startswith("-")] or names)
        flag, slash, off = written.partition("/")
        flag, off = flag.strip(), off.strip()
        default = self._constants.value(given.get("default"))
        kind, choices, lower, upper = self._typed(given.get("type"), default)
        required = self._constants.value(given.get("required"))
        is_required = required is True or (is_positional and default is None and required is None)
        return Option(
            name=flag.lstrip("-"),
            flag="" if is_positional else flag,
            off_flag=off,
            kind=kind,
            default=default,
            choices=choices,
            lower=lower,
            upper=upper,
            takes=self._taken(given, default, is_pair=bool(slash)),
            is_required=is_required,
            help=text_of(self._constants.value(given.get("help"))),
            line=line,
        )

    def _taken(self, given: Mapping[str, ast.expr], default: Any, *, is_pair: bool) -> Takes:
        if is_pair:
            return Takes.OR_NO
        is_flag, count, multiple, nargs = (
            self._constants.value(given.get(key))
            for key in ("is_flag", "count", "multiple", "nargs")
        )
        is_plain_bool = is_flag is None and isinstance(default, bool) and "type" not in given
        if is_flag is True or count is True or is_plain_bool:
            return Takes.NOTHING
        return Takes.VALUE if nargs in (None, 1) and multiple is not True else Takes.VALUES

    def _typed(
        self, node: ast.expr | None, default: Any
    ) -> tuple[str, tuple[Any, ...] | Unknown | None, float | None, float | None]:
        """Return kind, choices and bounds of a type of click's."""
        name = last_name(node)
        choices: tuple[Any, ...] | Unknown | None = None
        lower = upper = None
        if name == "Choice" and isinstance(node, ast.Call):
            listed = self._constants.value(node.args[0]) if node.args else UNKNOWN
            if node.args and isinstance(node.args[0], ast.Name):
                listed = self._constants.options_of_enum(node.args[0].id) or listed
            choices = listed if isinstance(listed, tuple) else UNKNOWN
        elif name in ("IntRange", "FloatRange") and isinstance(node, ast.Call):
            given = dict(zip(("min", "max"), node.args, strict=False)) | {
                keyword.arg: keyword.value for keyword in node.keywords if keyword.arg
            }
            lower, upper = (self._constants.value(given.get(key)) for key in ("min", "max"))
        return (
            _CLICK_TYPES.get(name) or kind_of(name, default, choices),
            choices,
            lower if is_number(lower) else None,
            upper if is_number(upper) else None,
        )

    def _typer_options(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Option]:
        arguments = [*node.args.posonlyargs, *node.args.args]
        padding = [None] * (len(arguments) - len(node.args.defaults))
        pairs = [
            *zip(arguments, [*padding, *node.args.defaults], strict=True),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            if last_name(argument.annotation) != "Context":
                yield self._typer_option(argument, default)

    def _typer_option(self, argument: ast.arg, default: ast.expr | None) -> Option:
        annotation, marker = argument.annotation, None
        match annotation:
            case ast.Subscript(slice=ast.Tuple(elts=[inner, ast.Call() as call, *_])) if (
                last_name(annotation.value) == "Annotated"
            ):
                annotation, marker = inner, call
        if isinstance(default, ast.Call) and last_name(default.func) in ("Option", "Argument"):
            marker = default
            default = marker.args[0] if marker.args else None
            names = marker.args[1:]
        else:
            names = marker.args if marker else []
        is_required = default is None or (
            isinstance(default, ast.Constant) and default.value is ...
        )
        given = {key.arg: key.value for key in marker.keywords if key.arg} if marker else {}
        if is_required and "default" in given:
            default, is_required = given["default"], False
        is_positional = (marker is None and is_required) or last_name(marker) == "Argument"
        texts = [self._constants.value(name) for name in names]
        own = [text for text in texts if isinstance(text, str)]
        option = self._option(
            own or [("" if is_positional else "--") + argument.arg.replace("_", "-")],
            {
                **{key: value for key, value in given.items() if key == "help"},
                **({} if is_required or default is None else {"default": default}),
            },
            argument.lineno,
            is_positional=is_positional,
        )
        kind, choices, takes = self._annotated(annotation, option.default)
        is_pair = takes is Takes.NOTHING and not own and not is_positional
        lower, upper = (self._constants.value(given.get(key)) for key in ("min", "max"))
        return replace(
            option,
            kind=kind or option.kind,
            choices=choices,
            takes=Takes.OR_NO if is_pair or option.off_flag else takes,
            off_flag=option.off_flag or (f"--no-{option.name}" if is_pair else ""),
            lower=lower if is_number(lower) else None,
            upper=upper if is_number(upper) else None,
            is_required=is_required,
        )

    def _annotated(
        self, node: ast.expr | None, default: Any
    ) -> tuple[str, tuple[Any, ...] | None, Takes]:
        """Return kind, choices and what follows, of an annotation."""
        match node:
            case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
                return self._annotated(left, default)
            case ast.Subscript(value=outer, slice=inner):
                name = last_name(outer)
                if name == "Optional":
                    return self._annotated(inner, default)
                if name == "Literal":
                    listed = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                    choices = tuple(self._constants.value(one) for one in listed)
                    return kind_of("", choices[0], None), choices, Takes.VALUE
                return "", None, Takes.VALUES
        name = last_name(node)
        if (members := self._constants.options_of_enum(name)) is not None:
            return "str", members, Takes.VALUE
        kind = kind_of(name, default, None)
        return kind, None, Takes.NOTHING if kind == "bool" else Takes.VALUE


def _is_of_library(node: ast.expr) -> bool:
    """Return whether a decorator is ``click.command``, and not that of a group."""
    function = node.func if isinstance(node, ast.Call) else node
    return dotted_name(function) in ("click.command", "command", "rich_click.command")


def _has(calls: Iterable[tuple[str, ast.expr]], name: str) -> bool:
    return any(found == name for found, _ in calls)
