"""The end of a search that no longer pays: whether further trials would still gain anything.

`stop_search` has what users declare and the rules, `watch` applies them to the trials of an
experiment, `stoppable_search` is the searcher's adapter with such a watch, and `telling` has the
sentences. Trials that run or are paused are not concerned: only new ones are no longer suggested.
"""
