"""Parsed search space: its parameters, and conversions between their values and configurations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, final

from .conditions import holds_words, is_word, plain_values
from .declared_space import check_not_nested, where_of
from .domains import Categorical, Domain, checked_value, sample
from .parameters import Condition, Drawn, Parameter, ParameterTable, all_values, num_assignments
from .sample_from import SampleFrom
from .tree import (
    DELIMITER,
    GRID_KEY,
    Conditional,
    Path,
    assign,
    check_unique_names,
    copied,
    flat_name,
    has_keys_of,
    is_grid,
    leaves,
    match,
    merge,
)

if TYPE_CHECKING:
    # For annotations only, so that importing the functions of search spaces stays cheap.
    from numpy.random import Generator

    from .relations import Relation


MAX_TAG_LENGTH: Final = 100
MAX_COUNTED: Final = 10_000
"""Most configurations that are tried one by one to count those that satisfy a relation."""
NUM_TRIED: Final = 200
"""Draws after which a point of a grid counts as infeasible."""


@final
class SearchSpace:
    """A parsed space, so that the cost of a configuration depends only on searched parameters.

    There are two ways to use one. `parameters` lists the parameters of any space, conditional or
    not; `values_of` and `config_of` convert configurations to values by name and back. `domains`,
    `assignments` and `resolve` use paths and ignore conditions: they are for searchers of flat
    spaces, and for random search.

    Attributes:
        space: The space as declared.
        is_conditional: Whether some parameters are only in some configurations.
        grid_axes: The values of each grid axis, by path.
        dependents: Its `SampleFrom` leaves, by path; in a conditional space by the steps to them,
            numbers of options included.
        where: The relation that its configurations satisfy; None if it has none.

    Raises:
        TypeError: If the space is not a dictionary.
        ValueError: If a grid axis has no values, a domain is nested in another, a condition is
            unknown, impossible or circular, or the relation is not one of this space.

    Example:
        >>> from searchers.space import choice, grid_search, loguniform, uniform
        >>> space = SearchSpace(
        ...     {"lr": loguniform(1e-4, 1e-1), "model": {"depth": grid_search([2, 3])}}
        ... )
        >>> list(space.domains), space.grid_axes
        ([('lr',)], {('model', 'depth'): [2, 3]})
        >>> space = SearchSpace(
        ...     {"opt": choice([{"name": "sgd", "momentum": uniform(0, 1)}, "none"])}
        ... )
        >>> [parameter.name for parameter in space.parameters]
        ['opt', 'opt/0/momentum']
        >>> space.values_of({"opt": {"name": "sgd", "momentum": 0.9}})
        {'opt': 0, 'opt/0/momentum': 0.9}
        >>> space.config_of({"opt": 0, "opt/0/momentum": 0.5}, rng=None)
        {'opt': {'name': 'sgd', 'momentum': 0.5}}
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        if not isinstance(space, Mapping):
            raise TypeError(
                f"a space must be a dictionary, got {space!r}; give each parameter a name"
            )
        self.space = dict(space)
        check_not_nested(self.space)
        check_unique_names(path for path, _ in leaves(self.space))
        words = {path: leaf for path, leaf in leaves(self.space) if is_word(leaf)}
        self.is_conditional = any(isinstance(word, Conditional) for word in words.values())
        self._domains: dict[Path, Domain] = {
            path: word for path, word in words.items() if isinstance(word, Domain)
        }
        self.dependents: dict[Path, SampleFrom] = {
            path: word for path, word in words.items() if isinstance(word, SampleFrom)
        }
        self.grid_axes: dict[Path, list[Any]] = {
            path: plain_values(flat_name(path), word[GRID_KEY])
            for path, word in words.items()
            if is_grid(word)
        }
        if self.is_conditional:
            self.dependents = self._table.dependents
        self.where: Relation | None = None
        if (where := where_of(space)) is not None:
            from .relations import Relation  # noqa: PLC0415  (most spaces have none)

            self.where = Relation(where, self.space)

    @property
    def domains(self) -> dict[Path, Domain]:
        """The domains of a flat space, by path.

        Raises:
            ValueError: If the space is conditional.
        """
        self._require_flat()
        return self._domains

    @property
    def words(self) -> dict[Path, Any]:
        """All searched leaves of a flat space, by path.

        Raises:
            ValueError: If the space is conditional.
        """
        self._require_flat()
        return {**self._domains, **self.grid_axes, **self.dependents}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, each after those it depends on, without computed ones."""
        return self._table.parameters

    def found_at(self, path: Path) -> Iterator[tuple[Path, Any, tuple[Condition, ...]]]:
        """Yield what configurations may have at a path, see `ParameterTable.found_at`."""
        return self._table.found_at(path)

    def active(self, values: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Return the active parameters, in the order of `parameters`.

        Args:
            values: Values by name. A condition on a missing parameter does not hold.
        """
        return tuple(parameter for parameter in self.parameters if parameter.is_active(values))

    def values_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameter values of a configuration, which may be partial, by name.

        Where several options of a choice fit with nothing missing, the first is taken.

        Args:
            config: A configuration, nested or with names such as ``"a/b"``. Constants may be
                repeated in it.

        Raises:
            ValueError: If it has an unknown name, a value outside its domain, another value for a
                constant, or an inactive parameter; or if it fits no option of a choice or, being
                incomplete, several.
        """
        found = self.assignments(config)
        steps = self._table.steps
        return {
            parameter.name: found[steps[parameter.name]]
            for parameter in self.parameters
            if steps[parameter.name] in found
        }

    def config_of(self, values: Mapping[str, Any], rng: Generator | None) -> dict[str, Any]:
        """Return a configuration with these values; others are drawn or computed.

        Args:
            values: Values by name, with one for each grid axis.
            rng: Random number generator; None if nothing is drawn.

        Raises:
            ValueError: If a name is unknown, a value lies outside its domain or belongs to an
                inactive parameter, or a grid axis has none.
        """
        steps = self._table.steps
        if unknown := sorted(name for name in values if name not in steps):
            raise ValueError(
                f"values must be those of parameters, got {unknown[0]!r}; there are "
                f"{', '.join(map(repr, steps)) or 'none'}"
            )
        return self.resolve(
            {
                steps[name]: self._table.by_name[name].checked(value)
                for name, value in values.items()
            },
            rng,
        )

    def assignments(self, point: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the values of a configuration, which may be partial, for searched parameters.

        Args:
            point: A configuration, nested or with names such as ``"a/b"``. Constants may be
                repeated in it.

        Returns:
            Values by path; in a conditional space by the steps to the parameters, the numbers of
            options included.

        Raises:
            ValueError: If it has an unknown name, a value outside its domain or another value for a
                constant; see `values_of`.
        """
        if self.is_conditional:
            from .configurations import parse_configuration  # noqa: PLC0415  (conditional only)

            return parse_configuration(self.space, self._table, point)
        return {
            path: self._checked(path, value) for path, value in match(self.space, point, is_word)
        }

    def resolve(self, assignments: Mapping[Path, Any], rng: Generator | None) -> dict[str, Any]:
        """Return a configuration with the assigned values; all others are sampled or computed.

        Values are sampled anew until `where` holds. Where all are assigned, it does not count.

        Args:
            assignments: Values by path, as from `assignments`, with one for each grid axis.
            rng: Random number generator; None if every domain is assigned.

        Raises:
            ValueError: If a grid axis has no value, an inactive parameter has one, functions depend
                on each other in a circle, or nothing that is sampled satisfies the relation.
        """
        drawn = self._drawn(assignments, rng)
        if self.where is not None and drawn.is_sampled and not self.where.holds(drawn.config):
            drawn = self._satisfying(self.where, assignments, rng)
        if not drawn.pending:
            return drawn.config
        from .computed_values import resolve_dependents  # noqa: PLC0415  (sample_from only)

        return resolve_dependents(drawn.config, drawn.pending, rng)

    def _drawn(self, assignments: Mapping[Path, Any], rng: Generator | None) -> Drawn:
        """Return a configuration with the assigned values, others sampled, none computed."""
        if self.is_conditional:
            from .configurations import build_configuration  # noqa: PLC0415  (conditional only)

            return build_configuration(self.space, self._table, assignments, rng)
        for path in self.grid_axes:
            if path not in assignments:
                raise ValueError(
                    f"grid axis {flat_name(path)!r} must be assigned, got no value; choose one of "
                    "its values"
                )
        sampled = {
            path: sample(domain, rng)
            for path, domain in self._domains.items()
            if path not in assignments
        }
        pending = {
            path: dependent
            for path, dependent in self.dependents.items()
            if path not in assignments
        }
        config = assign(copied(self.space), {**sampled, **assignments})
        return Drawn(config, pending, bool(sampled))

    def _satisfying(
        self,
        where: Relation,
        assignments: Mapping[Path, Any],
        rng: Generator | None,
        what: str = "",
    ) -> Drawn:
        """Return the first of many draws that satisfies the relation."""
        from .relations import MAX_DRAWS  # noqa: PLC0415  (spaces with a relation only)

        for _ in range(MAX_DRAWS):
            drawn = self._drawn(assignments, rng)
            if where.holds(drawn.config):
                return drawn
            if not drawn.is_sampled:
                raise where.refusal(drawn.config, what)
        raise where.unsatisfied(MAX_DRAWS, what)

    def is_feasible(self, assignments: Mapping[Path, Any]) -> bool:
        """Return whether some draw of the other values satisfies `where` beside these.

        Args:
            assignments: Values by path, with one for each grid axis.
        """
        from searchers.seeding import generator  # noqa: PLC0415  (spaces with a relation only)

        if self.where is None:
            return True
        rng, read = generator(0, 0), self.where.names
        is_drawn = any(
            parameter.steps not in assignments and (read is None or parameter.path in read)
            for parameter in self.parameters
        )
        return any(
            self.where.holds(self._drawn(assignments, rng).config)
            for _ in range(NUM_TRIED if is_drawn else 1)
        )

    def check_points(self, points: Sequence[Mapping[Path, Any]]) -> None:
        """Check that points to evaluate satisfy `where`, or can be completed so.

        Args:
            points: Their values by path, some of which may be missing.

        Raises:
            ValueError: If one violates the relation, or no draw of what is missing satisfies it.
        """
        for number, point in enumerate(points):
            values = {flat_name(path): value for path, value in point.items()}
            self.check_satisfiable(point, f"points_to_evaluate[{number}], {values},")

    def allows(self, assignments: Mapping[Path, Any]) -> bool:
        """Return whether whole configurations with these values satisfy `where`.

        Args:
            assignments: Values by path, as from `assignments`, but for computed ones.
        """
        if self.where is None:
            return True
        if self.where.names is None or self.is_conditional:
            return self.where.holds(self._drawn(assignments, None).config)
        from .relations import at  # noqa: PLC0415  (spaces with a relation only)

        return self.where.decide(
            lambda path: assignments[path] if path in assignments else at(self.space, path)
        )

    def check_satisfiable(
        self, assignments: Mapping[Path, Any] | None = None, what: str = ""
    ) -> None:
        """Check that configurations with these values can satisfy `where`.

        Args:
            assignments: Values by path; others are drawn, those of grid axes as well.
            what: What has these values, for the message.

        Raises:
            ValueError: If all values are given and violate the relation, or none of many draws of
                the others satisfies it.
        """
        if self.where is None:
            return
        from searchers.seeding import generator  # noqa: PLC0415  (spaces with a relation only)

        without_grid = SearchSpace(
            assign(self.space, {path: Categorical(tuple(a)) for path, a in self.grid_axes.items()})
        )
        without_grid._satisfying(self.where, assignments or {}, generator(0, 0), what)

    def recognised(self, config: Mapping[str, Any]) -> dict[Path, Any]:
        """Return `assignments` of the known entries; an empty dictionary if they do not fit.

        Args:
            config: A configuration, perhaps with entries that a user's searcher has added.
        """
        known = {
            key: value
            for key, value in config.items()
            if key in self.space or str(key).split(DELIMITER)[0] in self.space
        }
        try:
            return self.assignments(known)
        except ValueError:
            return {}

    def values_in(self, config: Mapping[str, Any]) -> Mapping[Path, Any]:
        """Return the values of a configuration, perhaps of another space, by path in this space.

        What is not found, or cannot be told, is left out.
        """
        if self.is_conditional:
            return self.recognised(config)
        found: dict[Path, Any] = {}
        for path in self.words:
            node: Any = config
            for step in path:
                try:
                    node = node[step]
                except (LookupError, TypeError):
                    break
            else:
                found[path] = node
        return found

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Return whether this is a whole configuration of the space, and nothing else.

        Example:
            >>> from searchers.space import uniform
            >>> space = SearchSpace({"lr": uniform(0, 1), "epochs": 5})
            >>> space.holds({"lr": 0.5, "epochs": 5}), space.holds({"lr": 0.5})
            (True, False)
        """
        try:
            found = self.assignments(config)
            if not self.is_conditional and self.dependents.keys() - found.keys():
                return False
            return has_keys_of(config, self.resolve(found, None))
        except Exception:  # noqa: BLE001  (of a user's function, which gets too little)
            return False

    def completed(self, suggestion: Mapping[str, Any]) -> dict[str, Any]:
        """Return a suggestion completed with the constants of the space.

        Args:
            suggestion: A configuration that may lack constants. If it does not fit the space, the
                constants outside choices are added.
        """
        if not self.is_conditional:
            return merge(self._constants, suggestion)
        from .configurations import known_constants  # noqa: PLC0415  (conditional only)

        names = self._table.names
        values = {
            names[steps]: value
            for steps, value in self.recognised(suggestion).items()
            if steps in names
        }
        return merge(known_constants(self.space, self._table, values), suggestion)

    def num_configurations(self) -> int | None:
        """Return the number of configurations, grid included; None if infinite or unknown.

        It is unknown with computed parameters, with functions as conditions on more than a hundred
        thousand values, and if conditions depend on each other too much to enumerate all cases;
        with a relation also in conditional spaces, and beyond ten thousand. Options of a choice
        count separately, even if their configurations are equal.

        Example:
            >>> from searchers.space import choice, randint
            >>> SearchSpace(
            ...     {
            ...         "depth": randint(1, 4),
            ...         "opt": choice([{"nesterov": choice([True, False])}, "none"]),
            ...     }
            ... ).num_configurations()
            9
        """
        if self.dependents:
            return None
        size = num_assignments(self.parameters)
        return size if self.where is None or size is None else self._num_allowed(size)

    def _num_allowed(self, size: int) -> int | None:
        """Return how many of the configurations satisfy `where`; None if that takes too long."""
        if self.is_conditional or size > MAX_COUNTED:
            return None
        axes = [all_values(parameter.domain) for parameter in self.parameters]
        steps = [parameter.steps for parameter in self.parameters]
        return sum(self.allows(dict(zip(steps, values, strict=True))) for values in product(*axes))

    # Most uses of a flat space do not need it.
    @cached_property
    def _table(self) -> ParameterTable:
        return ParameterTable(self.space)

    @cached_property
    def _constants(self) -> dict[str, Any]:
        return constants(self.space)

    def _require_flat(self) -> None:
        if self.is_conditional:
            found = next(parameter.name for parameter in self.parameters if parameter.conditions)
            raise ValueError(
                f"a space must be flat for this searcher, got the conditional parameter {found!r}; "
                "leave search_alg out for random search, or take a searcher that knows conditions, "
                "such as OptunaSearch"
            )

    def _checked(self, path: Path, value: Any) -> Any:
        known = (
            Categorical(tuple(self.grid_axes[path]))
            if path in self.grid_axes
            else self._domains.get(path)
        )
        return value if known is None else checked_value(flat_name(path), known, value)


def constants(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a space; a list or tuple with a domain is left out.

    Example:
        >>> from searchers.space import randint, uniform
        >>> constants(
        ...     {"lr": uniform(0, 1), "epochs": 5, "model": {"depth": randint(1, 4), "width": 8}}
        ... )
        {'epochs': 5, 'model': {'width': 8}}
    """
    kept: dict[str, Any] = {}
    for key, node in space.items():
        if not holds_words(node):
            kept[key] = node
        elif isinstance(node, dict) and not is_grid(node) and (inner := constants(node)):
            kept[key] = inner
    return kept


def domains(space: Mapping[str, Any]) -> dict[Path, Domain]:
    """Return the domains of a space by path.

    Example:
        >>> from searchers.space import randint
        >>> domains({"model": {"depth": randint(1, 4)}, "epochs": 5})
        {('model', 'depth'): Integer(lower=1, upper=3, q=1, is_log=False)}
    """
    return SearchSpace(space).domains


def grid_axes(space: Mapping[str, Any]) -> dict[Path, list[Any]]:
    """Return the values of each grid axis of a space by path.

    Example:
        >>> from searchers.space import grid_search
        >>> grid_axes({"depth": grid_search([2, 3]), "epochs": 5})
        {('depth',): [2, 3]}
    """
    return SearchSpace(space).grid_axes


def resolve(
    space: Mapping[str, Any], assignments: Mapping[Path, Any], rng: Generator | None
) -> dict[str, Any]:
    """Return a configuration; `SearchSpace.resolve` is faster for many.

    Example:
        >>> from searchers.space import uniform
        >>> resolve({"lr": uniform(0, 1), "epochs": 5}, {("lr",): 0.5}, rng=None)
        {'lr': 0.5, 'epochs': 5}
    """
    return SearchSpace(space).resolve(assignments, rng)


def experiment_tag(
    index: int, config: Mapping[str, Any], space: Mapping[str, Any] | SearchSpace
) -> str:
    """Return a trial's number and searched values, at most 100 characters.

    Args:
        index: The trial's number.
        config: The trial's configuration.
        space: The space it is from, best parsed already; constants are left out.

    Example:
        >>> from searchers.space import uniform
        >>> experiment_tag(
        ...     17, {"opt": {"lr": 0.01}, "epochs": 5}, {"opt": {"lr": uniform(0, 1)}, "epochs": 5}
        ... )
        '17_lr=0.0100'
    """
    taken = space if isinstance(space, SearchSpace) else SearchSpace(space)
    values = sorted(_values_in(config, taken), key=lambda found: flat_name(found[0]))
    listed = ",".join(f"{_short_name(path)}={_short_value(value)}" for path, value in values)
    return f"{index}_{listed}"[:MAX_TAG_LENGTH] if listed else str(index)


def _values_in(config: Mapping[str, Any], space: SearchSpace) -> Iterable[tuple[Path, Any]]:
    if not space.is_conditional:
        return _values_at(config, space.words)
    return space.recognised(config).items()


def _values_at(config: Any, paths: Iterable[Path]) -> Iterator[tuple[Path, Any]]:
    for path in paths:
        try:
            yield path, reduce(getitem, path, config)
        # A user's searcher may have left the parameter out.
        except (KeyError, IndexError, TypeError):
            continue


def _short_name(path: Path) -> str:
    start = max((place for place, step in enumerate(path) if isinstance(step, str)), default=0)
    return "_".join(map(str, path[start:]))


def _short_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return " ".join(str(getattr(value, "__name__", value)).split())
