"""The fault benches: everything that is broken on purpose, and what became of it.

``python -m benchmarks.faults`` runs the cases of `cases.CASES`, ``--write`` puts the table into
``docs/reliability.md``. The benches among them, each a file with a command of its own, run whole
experiments in real processes and judge them from outside: with a ledger that the trials keep beside
the experiment, and with readers that share no code with the product.
"""
