"""Searchers that ask another library what to try next, one module for each library.

A library is imported in its own module alone, and only when its searcher is used. What these searchers share, in particular how the
history of an experiment is told to a library, stands here too; models of our own are in `searchers.models`.
"""
