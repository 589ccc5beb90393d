"""Clusters: which there are, and the processes and files on their nodes."""
