"""Searchers that wrap another searcher and change its suggestions or the results it gets.

They limit how many suggestions are unfinished at a time, repeat each configuration, or replace
duplicates. Their base class is in `searchers.searcher`. Searchers that compute suggestions
themselves are in `searchers.models` and `searchers.libraries`.
"""
