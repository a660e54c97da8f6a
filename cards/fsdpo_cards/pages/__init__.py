"""Pages: one file with everything in it, which opens from disk and asks no network.

``layout.html`` is what they have in common, ``browser.html`` the list of problems of those that
have one; who writes a page extends them.
"""
