"""Results as text, JSON, CSV, pages and figures."""
