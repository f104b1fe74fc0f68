"""The command line: a file or two per verb; parse, call, print."""
