"""Transformers from their ``config.json``: sizes become an architecture, which yields its parameters and its ops.

No model is run and no framework is needed.
"""
