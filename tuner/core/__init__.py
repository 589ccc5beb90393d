"""The pure state machine of an experiment: events in, commands and notices out.

It performs no I/O and uses no clock, no thread and no global random numbers, so that the same
events always lead to the same decisions. `tuner.driver` collects the events, and `tuner.execution`
carries out the commands.
"""
