"""fomkit's own files, of machines, models, suites and campaigns: find, check, read and write them."""
