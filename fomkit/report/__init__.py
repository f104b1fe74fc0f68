"""What people see: terminal text, JSON, CSV and pages, all from the same content."""
