"""Reports on runs: HTML pages, Markdown tables, plots, and tables in the terminal."""
