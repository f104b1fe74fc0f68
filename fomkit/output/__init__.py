"""Format results as text, JSON, CSV, HTML pages and charts."""
