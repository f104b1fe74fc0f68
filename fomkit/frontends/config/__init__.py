"""Transformers from their ``config.json``: sizes become an architecture, that its parameters and its ops.

Nothing runs and no framework is needed.
"""
