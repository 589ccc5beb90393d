"""Executor for one machine: every attempt of a trial runs in its own process.

`executor` is the driver's side. It starts a `zygote`, which loads the trainable once and forks a
`worker` for each attempt. What training code sees is in `tuner.execution`.
"""
