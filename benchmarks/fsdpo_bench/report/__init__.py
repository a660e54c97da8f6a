"""Reports on runs: HTML pages, Markdown tables and plots."""
