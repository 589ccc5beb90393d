"""The pure state machine of an experiment: events in, commands and notices out.

It does no I/O and has no clock, no thread and no global random numbers, so that the same events always give the same decisions. Events are
gathered and commands carried out by `tuner.driver` and `tuner.execution`.
"""
