"""The report: an experiment as one HTML file, which needs no network and no server."""

from .html import write_page

__all__ = ["write_page"]
