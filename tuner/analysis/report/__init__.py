"""HTML report of an experiment: one file that needs no network and no server.

`page` puts it together, `charts` chooses the charts, and `sections` writes text and tables; its
style and script are `page.css` and `page.js`. What the charts show is computed in
`tuner.analysis.charts`.
"""

from .page import write_page

__all__ = ["write_page"]
