"""The report: an experiment as one HTML file, which needs no network and no server."""

from .page import write_page

__all__ = ["write_page"]
