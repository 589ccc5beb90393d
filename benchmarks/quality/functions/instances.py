"""The functions of the track: continuous, mixed and conditional ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .function import Axis, Function, Term, is_confirmation

NOISE = 0.05
_FALLING = (0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


def _numbers(
    num: int, log: Sequence[int] = (), when: tuple[str, tuple[str, ...]] | None = None, of: str = ""
) -> tuple[Axis, ...]:
    """Return axes ``x0``, ``x1``, ...; those named by `log` have four decades."""
    return tuple(
        Axis(f"{of}x{index}", "float", 1e-4, 1.0, log=True, when=when)
        if index in log
        else Axis(f"{of}x{index}", "float", -5.0, 5.0, when=when)
        for index in range(num)
    )


def _choice(
    name: str, num: int, when: tuple[str, tuple[str, ...]] | None = None, options: str = "abcdef"
) -> Axis:
    return Axis(name, "choice", values=tuple(options[:num]), when=when)


def _names(axes: Sequence[Axis]) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes)


def _continuous(
    kind: str, dimension: int, log: Sequence[int] = (), noise: float = 0.0, label: str = ""
) -> Function:
    axes = _numbers(dimension, log)
    name = f"{label or kind}-{dimension}"
    return Function(name, "continuous", axes, [Term(kind, _names(axes))], noise=noise)


def _moved(name: str, kind: str, dimension: int, penalties: Mapping[str, float]) -> Function:
    """Return a function in which each option has its minimum at another place."""
    axes = (_choice("c", len(penalties)), *_numbers(dimension))
    term = Term(kind, _names(axes[1:]), moved_by="c")
    return Function(name, "mixed", axes, [term], {"c": penalties})


def _mixed() -> list[Function]:
    factors = {"a": 3.0, "b": 1.0, "c": 0.3, "d": 10.0}
    scaled = (_choice("c", 4), _choice("e", 2), *_numbers(5))
    switched = (_choice("c", 3), *_numbers(4, log=(0, 1)))
    steps = (
        Axis("n0", "int", 1, 8),
        Axis("n1", "int", 16, 1024, log=True),
        *_numbers(3, log=(0,)),
    )
    integers = (Axis("n0", "int", 0, 20), Axis("n1", "int", 0, 10), Axis("n2", "int", 1, 5))
    options = tuple(_choice(name, num) for name, num in zip("cdefg", (2, 3, 4, 5, 6), strict=True))
    # As in training a network: sizes, rates, an optimizer that moves the best rates, a schedule.
    network = (
        _choice("optimizer", 3),
        _choice("schedule", 4),
        Axis("layers", "int", 1, 6),
        Axis("width", "int", 16, 1024, log=True),
        *_numbers(4, log=(0, 1)),
    )
    return [
        _moved("moved_sphere", "sphere", 3, {"a": 0.3, "b": 0.0}),
        _moved("moved_rastrigin", "rastrigin", 2, {"a": 0.2, "b": 0.1, "c": 0.0, "d": 0.4}),
        _moved("moved_gallagher", "gallagher", 2, {"a": 0.0, "b": 0.2, "c": 0.1}),
        _moved("moved_schaffer", "schaffer", 3, dict(zip("abcdef", _FALLING, strict=True))),
        Function(
            "scaled_rosenbrock",
            "mixed",
            scaled,
            [Term("rosenbrock", _names(scaled[2:]), scaled_by=("c", factors))],
            {"c": {"a": 0.0, "b": 0.02, "c": 0.2, "d": 0.0}, "e": {"a": 0.1, "b": 0.0}},
        ),
        Function(
            "switched_kinds",
            "mixed",
            switched,
            [
                Term(kind, _names(switched[1:]), {"c": (option,)})
                for option, kind in zip("abc", ("sphere", "schaffer", "ackley"), strict=True)
            ],
            {"c": {"a": 0.15, "b": 0.0, "c": 0.05}},
        ),
        Function("integer_ellipsoid", "mixed", steps, [Term("ellipsoid", _names(steps))]),
        Function(
            "integer_griewank",
            "mixed",
            (*integers, _choice("c", 3)),
            [Term("griewank_rosenbrock", _names(integers), moved_by="c")],
            {"c": {"a": 0.0, "b": 0.1, "c": 0.1}},
        ),
        Function(
            "many_choices",
            "mixed",
            (*options, *_numbers(2, log=(1,))),
            [Term("sharp_ridge", ("x0", "x1"), moved_by="c")],
            {
                "c": {"a": 0.0, "b": 0.2},
                "d": {"a": 0.2, "b": 0.0, "c": 0.3},
                "e": {"a": 0.3, "b": 0.1, "c": 0.2, "d": 0.0},
                "f": {"a": 0.1, "b": 0.2, "c": 0.0, "d": 0.1, "e": 0.3},
                "g": {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.0, "e": 0.1, "f": 0.2},
            },
        ),
        Function(
            "network",
            "mixed",
            network,
            [
                Term("sphere", ("x0", "x1", "width"), moved_by="optimizer"),
                Term("rosenbrock", ("layers", "x2", "x3")),
            ],
            {
                "optimizer": {"a": 0.0, "b": 0.1, "c": 0.4},
                "schedule": {"a": 0.2, "b": 0.0, "c": 0.05, "d": 0.3},
            },
        ),
    ]


def _branches(
    name: str,
    shared: Sequence[Axis],
    kinds: Mapping[str, tuple[str, int]],
    penalties: Mapping[str, float],
) -> Function:
    """Return a function in which each option of ``c`` has its own numbers and landscape."""
    own = {
        option: _numbers(num, when=("c", (option,)), of=option)
        for option, (_, num) in kinds.items()
    }
    axes = (
        *shared,
        _choice("c", len(penalties)),
        *(axis for axes_of_option in own.values() for axis in axes_of_option),
    )
    terms = [Term(kind, _names(own[option])) for option, (kind, _) in kinds.items()]
    if shared:
        terms.append(Term("rosenbrock", _names(shared)))
    return Function(name, "conditional", axes, terms, {"c": penalties})


def _conditional() -> list[Function]:
    # Each layer has parameters of its own, which exist from a number of layers on.
    layers = (
        Axis("layers", "int", 1, 4),
        *(
            axis
            for layer in (1, 2, 3, 4)
            for axis in (
                Axis(f"width{layer}", "int", 16, 512, log=True, when=_at_least(layer)),
                Axis(f"dropout{layer}", "float", 0.0, 0.8, when=_at_least(layer)),
            )
        ),
    )
    # Two levels: a choice, under one of whose options there is another choice.
    deep = (
        *_numbers(2, log=(0,)),
        _choice("c", 3),
        *_numbers(2, when=("c", ("a",)), of="a"),
        _choice("d", 3, when=("c", ("b",))),
        *_numbers(2, log=(1,), when=("d", ("a", "b")), of="d"),
        *_numbers(3, when=("d", ("b",)), of="e"),
    )
    switches = tuple(_choice(f"s{index}", 2, options="ny") for index in range(3))
    switched = tuple(
        axis
        for switch in switches
        for axis in _numbers(2, when=(switch.name, ("y",)), of=switch.name)
    )
    pipeline = (
        _choice("scaler", 3),
        _choice("model", 4),
        *_numbers(2, log=(0, 1), when=("model", ("a", "b")), of="kernel"),
        _choice("degree", 3, when=("model", ("b",))),
        Axis("trees", "int", 10, 1000, log=True, when=("model", ("c",))),
        Axis("depth", "int", 1, 20, when=("model", ("c",))),
        *_numbers(1, log=(0,), when=("model", ("c",)), of="tree"),
    )
    return [
        _branches(
            "two_branches", (), {"a": ("sphere", 3), "b": ("rosenbrock", 2)}, {"a": 0.1, "b": 0.0}
        ),
        _branches(
            "four_branches",
            _numbers(2, log=(0,)),
            {"a": ("rastrigin", 2), "b": ("ellipsoid", 3), "c": ("ackley", 2)},
            {"a": 0.1, "b": 0.0, "c": 0.05, "d": 0.5},
        ),
        _branches(
            "six_branches",
            _numbers(2, log=(1,)),
            dict.fromkeys("abcdef", ("sphere", 2)),
            dict(zip("abcdef", _FALLING, strict=True)),
        ),
        _branches(
            "deceptive_branches",
            (),
            {"a": ("sphere", 2), "b": ("weierstrass", 2), "c": ("rastrigin", 2)},
            {"a": 0.3, "b": 0.2, "c": 0.0},
        ),
        _branches(
            "large_branches",
            _numbers(2),
            {"a": ("sharp_ridge", 5), "b": ("sphere", 5)},
            {"a": 0.0, "b": 0.1},
        ),
        _branches(
            "optional_branch",
            _numbers(3, log=(0,)),
            {"b": ("griewank_rosenbrock", 3)},
            {"a": 0.3, "b": 0.0},
        ),
        Function(
            "layers",
            "conditional",
            layers,
            [Term("sphere", (f"width{layer}", f"dropout{layer}")) for layer in (1, 2, 3, 4)],
            {"layers": {1: 0.6, 2: 0.2, 3: 0.0, 4: 0.3}},
        ),
        Function(
            "two_levels",
            "conditional",
            deep,
            [
                Term("sharp_ridge", ("x0", "x1")),
                Term("sphere", ("ax0", "ax1")),
                Term("rosenbrock", ("dx0", "dx1")),
                Term("sphere", ("ex0", "ex1", "ex2")),
            ],
            {"c": {"a": 0.2, "b": 0.0, "c": 0.8}, "d": {"a": 0.2, "b": 0.0, "c": 0.5}},
        ),
        Function(
            "switches",
            "conditional",
            (*_numbers(2), *switches, *switched),
            [
                Term("rosenbrock", ("x0", "x1")),
                *(Term("ellipsoid", (f"s{index}x0", f"s{index}x1")) for index in range(3)),
            ],
            {f"s{index}": {"n": 0.3, "y": 0.0} for index in range(2)} | {"s2": {"n": 0, "y": 0.2}},
        ),
        Function(
            "pipeline",
            "conditional",
            pipeline,
            [
                Term("rosenbrock", ("kernelx0", "kernelx1"), {"model": ("a",)}),
                Term("sphere", ("kernelx0", "kernelx1"), {"model": ("b",)}, moved_by="degree"),
                Term("step_ellipsoid", ("trees", "depth", "treex0")),
            ],
            {
                "scaler": {"a": 0.1, "b": 0.0, "c": 0.2},
                "model": {"a": 0.15, "b": 0.0, "c": 0.1, "d": 0.7},
                "degree": {"a": 0.3, "b": 0.0, "c": 0.1},
            },
        ),
    ]


def _at_least(layer: int) -> tuple[str, tuple[int, ...]] | None:
    return ("layers", tuple(range(layer, 5))) if layer > 1 else None


FUNCTIONS: Mapping[str, Function] = {
    function.name: function
    for function in (
        _continuous("sphere", 5),
        _continuous("ellipsoid", 4, log=(0, 2)),
        _continuous("attractive_sector", 6),
        _continuous("step_ellipsoid", 5),
        _continuous("rosenbrock", 3, log=(0,)),
        _continuous("rosenbrock", 8),
        _continuous("rastrigin", 4),
        _continuous("different_powers", 8, log=(1, 3, 5)),
        _continuous("sharp_ridge", 5),
        _continuous("weierstrass", 3),
        _continuous("schaffer", 6),
        _continuous("griewank_rosenbrock", 4),
        _continuous("schwefel", 3),
        _continuous("gallagher", 2, log=(0, 1)),
        _continuous("lunacek", 5),
        _continuous("branin", 2),
        _continuous("hartmann6", 6),
        _continuous("ackley", 10),
        _continuous("sphere", 4, noise=NOISE, label="noisy_sphere"),
        _continuous("hartmann6", 6, noise=NOISE, label="noisy_hartmann6"),
        *_mixed(),
        *_conditional(),
    )
}
"""All functions, by name."""

DEVELOPMENT = tuple(name for name in FUNCTIONS if not is_confirmation(name))
"""Functions on which settings are chosen."""
CONFIRMATION = tuple(name for name in FUNCTIONS if is_confirmation(name))
"""Functions that serve only for the figures."""
