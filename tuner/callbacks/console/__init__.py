"""Console output: the progress of an experiment on a terminal, in a notebook, or as plain lines.

Here is what is shown (`console_view`, `progress_table`) and how it is drawn (`displays`); the
progress itself is computed by `tuner.core.progress`.
"""
