"""The stages that make and change sealed datasets, each with its spec, options and command."""
