"""Executor for one machine: every attempt of a trial and every validation runs in its own process.

`executor` is the driver's side. It starts a `zygote`, which loads the trainable and the declared
validation function once and forks a `worker` for each attempt and each validation. What training
code sees is in `tuner.execution`.
"""
