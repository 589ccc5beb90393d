"""Nodes in the core: machines that join, drain and leave while trials run on them."""
