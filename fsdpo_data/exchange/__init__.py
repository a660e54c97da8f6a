"""Export to, and import from, the file formats of other tools."""
