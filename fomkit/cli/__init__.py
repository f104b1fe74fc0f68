"""The command line: parse, call, print. Eight verbs' lines are made by `adapter`; the others have a file."""
