"""The loop that runs an experiment, and what stands around it.

The driver waits for events, folds them, writes them to the journal, notifies, and acts. `assembly`
puts a driver together, `run` a session of an experiment on this machine. The state machine is in
`tuner.core`, and processes are in `tuner.execution`.
"""
