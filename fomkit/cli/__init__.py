"""The command line: `main` parses and dispatches; `adapter` makes verbs' options, `choices` has shared ones."""
