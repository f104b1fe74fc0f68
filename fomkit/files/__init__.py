"""Read and write files safely: YAML, JSON, CSV, workbooks, atomic writes, child processes."""
