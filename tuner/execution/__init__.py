"""Execution of trials: the executor interface, executors, and what training code sees.

`tuner.execution.local` runs each attempt in its own process; the executors here run trials in
the driver's process (`inline`) or in virtual time (`virtual`). An executor makes no decisions: it
carries out commands of `tuner.core` and returns events.
"""
