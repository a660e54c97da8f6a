"""Reports that people open and pass on."""
