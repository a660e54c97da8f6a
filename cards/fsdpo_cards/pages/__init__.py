"""HTML pages, each a single file that opens from disk and loads nothing from the network.

``layout.html`` is the base template of all pages. Pages with a list of problems include
``browser.html``.
"""
