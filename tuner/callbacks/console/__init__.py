"""The console: the progress of an experiment on a terminal, in a notebook, or as plain lines.

Here is what is shown and how it is drawn; how far an experiment has come is told by
`tuner.core.progress`.
"""
