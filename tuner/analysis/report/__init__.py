"""HTML report of an experiment: one file that needs no network and no server.

`page` assembles it, `charts` chooses the charts, and `sections` writes text and tables; style and
script are `page.css` and `page.js`. The charts and their data come from `tuner.analysis.charts`.
"""

from .page import write_page

__all__ = ["write_page"]
