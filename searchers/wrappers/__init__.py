"""Searchers that stand around another searcher and change what it proposes or hears.

They limit how many suggestions are open at a time, repeat each configuration, or replace duplicates. A searcher that makes suggestions of
its own belongs in `searchers.models` or `searchers.libraries`.
"""
