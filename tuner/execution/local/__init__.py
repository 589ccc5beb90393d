"""Trials in processes of this machine.

One zygote loads the trainable and forks a clean worker for each attempt; here are its protocols, process groups, and the diagnosis of
exits. What training code itself sees, trainables and the session, is in `tuner.execution`.
"""
