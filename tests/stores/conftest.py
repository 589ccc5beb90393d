"""Fixtures of tests about object stores."""

from tests.faulty_disks import faulty_disk, memory_disk, names_in, tree_of

__all__ = ["faulty_disk", "memory_disk", "names_in", "tree_of"]
