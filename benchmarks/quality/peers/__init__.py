"""Searches of other projects.

Each ``*_peer`` module runs in a separate environment. Of tuner it imports only `dialogue` and
`spaces`.
"""
