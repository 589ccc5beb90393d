"""Fault and security cases, and the benches that inject faults into real experiments.

``python -m benchmarks.faults`` runs the cases of `page.CASES`; with ``--write`` it updates the
table in ``docs/reliability.md``. Each bench is a file that can also be run as a command. It runs
whole experiments in real processes and checks them from outside, with a ledger that the trials keep
outside the experiment's directory, and with readers that share no code with the product.
"""
