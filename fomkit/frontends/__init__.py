"""Turn a framework's model into a table of ops."""
