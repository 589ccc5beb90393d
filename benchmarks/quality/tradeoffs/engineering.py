"""Design problems of engineering, with formulas from the literature.

References:
    The problems with several objectives are those of Tanabe and Ishibuchi (2020), "An easy-to-use
    real-world multi-objective optimization problem suite", Applied Soft Computing 89, who collect
    them from the papers named at each function.
"""

from __future__ import annotations

import math

from benchmarks.quality.functions.function import Axis
from searchers.objectives import OutcomeConstraint

from .problem import Config, Metrics, Objective, Problem


def disc_brake(config: Config) -> Metrics:
    """Return mass and stopping time of a disc brake: CRE23 of the suite.

    References:
        Ray and Liew (2002), "A swarm metaphor for multiobjective design optimization".
    """
    inner, outer, force = config["inner_mm"], config["outer_mm"], config["force_n"]
    surfaces = config["surfaces"]
    squares, cubes = outer**2 - inner**2, outer**3 - inner**3
    # Inner and outer radius may be given in the wrong order; the area is then taken as tiny.
    squares, cubes = max(squares, 1.0), max(cubes, 1.0)
    return {
        "mass_kg": 4.9e-5 * squares * (surfaces - 1),
        "stopping_s": 9.82e6 * squares / (force * surfaces * cubes),
        "ring_mm": outer - inner,
        "pressure": force / (3.14 * squares),
        "heat": 2.22e-3 * force * cubes / squares**2,
        "torque": 2.66e-2 * force * surfaces * cubes / squares,
    }


def welded_beam(config: Config) -> Metrics:
    """Return cost and deflection of a beam that is welded to a wall: CRE22 of the suite.

    References:
        Ray and Liew (2002), "A swarm metaphor for multiobjective design optimization".
    """
    weld, length = config["weld_in"], config["length_in"]
    height, width = config["height_in"], config["width_in"]
    load, overhang, elasticity, shear_modulus = 6_000.0, 14.0, 30e6, 12e6
    half = ((weld + height) / 2) ** 2
    moment = load * (overhang + length / 2)
    inertia = 2 * math.sqrt(2) * weld * length * (length**2 / 12 + half)
    direct = load / (math.sqrt(2) * weld * length)
    bending = moment * math.sqrt(length**2 / 4 + half) / inertia
    cosine = length / (2 * math.sqrt(length**2 / 4 + half))
    slenderness = height / (2 * overhang) * math.sqrt(elasticity / (4 * shear_modulus))
    return {
        "cost": 1.10471 * weld**2 * length + 0.04811 * height * width * (overhang + length),
        "deflection_in": 4 * load * overhang**3 / (elasticity * width * height**3),
        "shear_psi": math.sqrt(direct**2 + 2 * direct * bending * cosine + bending**2),
        "stress_psi": 6 * load * overhang / (width * height**2),
        "weld_over_width": weld / width,
        "buckling_lb": 4.013 * elasticity * height * width**3 / 6 / overhang**2 * (1 - slenderness),
    }


def crashworthiness(config: Config) -> Metrics:
    """Return mass, deceleration and intrusion of a car in a crash: RE34 of the suite.

    References:
        Liao et al. (2008), "Multiobjective optimization for crash safety design of vehicles using
        stepwise regression model".
    """
    a, b, c, d, e = (config[f"thickness{number}_mm"] for number in range(1, 6))
    return {
        "mass_kg": 1640.2823
        + (2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e),
        "deceleration": 6.5856
        + (1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d)
        + (-0.3695 * a * d + 0.0861 * a * e + 0.3628 * b * d)
        + (-0.1106 * a**2 - 0.3437 * c**2 + 0.1764 * d**2),
        "intrusion_m": -0.0551
        + (0.0181 * a + 0.1024 * b + 0.0421 * c)
        + (-0.0073 * a * b + 0.024 * b * c - 0.0118 * b * d - 0.0204 * c * d - 0.008 * c * e)
        + (-0.0241 * b**2 + 0.0109 * d**2),
    }


def side_impact(config: Config) -> Metrics:
    """Return mass, pubic force and velocities of a car that is hit from the side: CRE31.

    References:
        Jain and Deb (2014), "An evolutionary many-objective optimization algorithm using
        reference-point based nondominated sorting approach, part II".
    """
    pillar, reinforcement, floor = config["pillar"], config["reinforcement"], config["floor"]
    members, beam, line, roof = config["members"], config["beam"], config["line"], config["roof"]
    force = 4.72 - 0.5 * members - 0.19 * reinforcement * floor
    inside = 10.58 - 0.674 * pillar * reinforcement - 0.67275 * reinforcement
    door = 16.45 - 0.489 * floor * roof - 0.843 * beam * line
    both = pillar * reinforcement
    return {
        "mass_kg": 1.98
        + (4.9 * pillar + 6.67 * reinforcement + 6.98 * floor + 4.01 * members)
        + (1.78 * beam + 1e-5 * line + 2.73 * roof),
        "force_kn": force,
        "velocity": (inside + door) / 2,
        "abdomen_kn": 1.16 - 0.3717 * reinforcement * members - 0.0092928 * floor,
        "upper_criterion": 0.261
        - (0.0159 * both + 0.06486 * pillar + 0.019 * reinforcement * roof)
        + (0.0144 * floor * beam + 0.0154464 * line),
        "middle_criterion": 0.214
        + (0.00817 * beam - 0.0587118 * pillar + 0.03099 * reinforcement * line)
        + (-0.018 * reinforcement * roof + 0.030408 * floor)
        - (0.00364 * beam * line + 0.018 * reinforcement**2),
        "lower_criterion": 0.74
        - (0.61 * reinforcement + 0.031296 * floor + 0.031872 * roof)
        + 0.227 * reinforcement**2,
        "upper_rib_mm": 28.98 + 3.818 * floor - 4.2 * both + 1.27296 * line - 2.68065 * roof,
        "middle_rib_mm": 35.31728
        + (2.95 * floor - 5.057 * both - 3.795 * reinforcement - 3.4431 * roof),
        "lower_rib_mm": 46.36 - 9.9 * reinforcement - 4.4505 * pillar,
        "pillar_velocity": inside,
        "door_velocity": door,
    }


def pressure_vessel(config: Config) -> Metrics:
    """Return the cost of a tank whose plates come in steps of a sixteenth of an inch.

    References:
        Kannan and Kramer (1994), "An augmented Lagrange multiplier based method for mixed integer
        discrete continuous optimization"; RE23 of the suite with its constraints.
    """
    shell, head = config["shell_16ths"] / 16, config["head_16ths"] / 16
    radius, length = config["radius_in"], config["length_in"]
    return {
        "cost": 0.6224 * shell * radius * length
        + 1.7781 * head * radius**2
        + 3.1661 * shell**2 * length
        + 19.84 * shell**2 * radius,
        "shell_load": 0.0193 * radius / shell,
        "head_load": 0.00954 * radius / head,
        "volume_in3": math.pi * radius**2 * length + 4 / 3 * math.pi * radius**3,
    }


_BARS = {"no4": 0.2, "no5": 0.31, "no6": 0.44, "no7": 0.6, "no8": 0.79, "no9": 1.0, "no10": 1.27}
"""Areas of reinforcing bars of standard sizes, in square inches."""


def concrete_beam(config: Config) -> Metrics:
    """Return the cost of a beam of reinforced concrete.

    The area of the steel follows from the number and the size of its bars.

    References:
        Amir and Hasegawa (1989), "Nonlinear mixed-discrete structural optimization"; RE22 of the
        suite with its constraints, where the area is one of a list. The factor of the strength is
        that of the paper.
    """
    area = config["num_bars"] * _BARS[config["bar"]]
    width, depth = config["width_in"], config["depth_in"]
    return {
        "cost": 29.4 * area + 0.6 * width * depth,
        "strength": area * depth - 7.375 * area**2 / width,
        "slenderness": depth / width,
    }


PROBLEMS = (
    Problem(
        "disc_brake",
        "engineering",
        "disc brake: mass and stopping time",
        (
            Axis("inner_mm", "float", 55.0, 80.0),
            Axis("outer_mm", "float", 75.0, 110.0),
            Axis("force_n", "float", 1_000.0, 3_000.0),
            Axis("surfaces", "int", 11, 20),
        ),
        (Objective("mass_kg"), Objective("stopping_s")),
        (
            OutcomeConstraint("ring_mm", ">=", 20.0),
            OutcomeConstraint("pressure", "<=", 0.4),
            OutcomeConstraint("heat", "<=", 1.0),
            OutcomeConstraint("torque", ">=", 900.0),
        ),
        disc_brake,
    ),
    Problem(
        "welded_beam",
        "engineering",
        "welded beam: cost and deflection",
        (
            Axis("weld_in", "float", 0.125, 5.0, log=True),
            Axis("length_in", "float", 0.1, 10.0, log=True),
            Axis("height_in", "float", 0.1, 10.0, log=True),
            Axis("width_in", "float", 0.125, 5.0),
        ),
        (Objective("cost"), Objective("deflection_in")),
        (
            OutcomeConstraint("shear_psi", "<=", 13_600.0),
            OutcomeConstraint("stress_psi", "<=", 30_000.0),
            OutcomeConstraint("weld_over_width", "<=", 1.0),
            OutcomeConstraint("buckling_lb", ">=", 6_000.0),
        ),
        welded_beam,
    ),
    Problem(
        "crashworthiness",
        "engineering",
        "front of a car: mass, deceleration and intrusion",
        tuple(Axis(f"thickness{number}_mm", "float", 1.0, 3.0) for number in range(1, 6)),
        (Objective("mass_kg"), Objective("deceleration"), Objective("intrusion_m")),
        (),
        crashworthiness,
    ),
    Problem(
        "side_impact",
        "engineering",
        "side of a car: mass, force and velocity",
        (
            Axis("pillar", "float", 0.5, 1.5),
            Axis("reinforcement", "float", 0.45, 1.35),
            Axis("floor", "float", 0.5, 1.5),
            Axis("members", "float", 0.5, 1.5),
            Axis("beam", "float", 0.875, 2.625),
            Axis("line", "float", 0.4, 1.2),
            Axis("roof", "float", 0.4, 1.2),
        ),
        (Objective("mass_kg"), Objective("force_kn"), Objective("velocity")),
        (
            OutcomeConstraint("abdomen_kn", "<=", 1.0),
            OutcomeConstraint("upper_criterion", "<=", 0.32),
            OutcomeConstraint("middle_criterion", "<=", 0.32),
            OutcomeConstraint("lower_criterion", "<=", 0.32),
            OutcomeConstraint("upper_rib_mm", "<=", 32.0),
            OutcomeConstraint("middle_rib_mm", "<=", 32.0),
            OutcomeConstraint("lower_rib_mm", "<=", 32.0),
            OutcomeConstraint("force_kn", "<=", 4.0),
            OutcomeConstraint("pillar_velocity", "<=", 9.9),
            OutcomeConstraint("door_velocity", "<=", 15.7),
        ),
        side_impact,
    ),
    Problem(
        "pressure_vessel",
        "engineering",
        "tank under pressure: cost",
        (
            Axis("shell_16ths", "int", 4, 40),
            Axis("head_16ths", "int", 2, 30),
            Axis("radius_in", "float", 10.0, 80.0),
            Axis("length_in", "float", 10.0, 240.0),
        ),
        (Objective("cost"),),
        (
            OutcomeConstraint("shell_load", "<=", 1.0),
            OutcomeConstraint("head_load", "<=", 1.0),
            OutcomeConstraint("volume_in3", ">=", 1_296_000.0),
        ),
        pressure_vessel,
    ),
    Problem(
        "concrete_beam",
        "engineering",
        "beam of reinforced concrete: cost",
        (
            Axis("num_bars", "int", 1, 20, log=True),
            Axis("bar", "choice", values=tuple(_BARS)),
            Axis("width_in", "float", 4.0, 20.0),
            Axis("depth_in", "float", 10.0, 40.0),
        ),
        (Objective("cost"),),
        (OutcomeConstraint("strength", ">=", 180.0), OutcomeConstraint("slenderness", "<=", 4.0)),
        concrete_beam,
    ),
)
