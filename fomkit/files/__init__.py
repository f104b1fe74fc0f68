"""Files of any kind, read and written safely: YAML, JSON, CSV, workbooks, whole writes, child processes."""
