"""Searchers that wrap another searcher and change its suggestions or the results it gets.

They limit how many suggestions are open at a time, repeat each configuration, or replace
duplicates. Their base class is in `searchers.searcher`. A searcher that makes suggestions of its
own belongs in `searchers.models` or `searchers.libraries`.
"""
