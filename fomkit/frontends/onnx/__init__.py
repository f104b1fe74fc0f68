"""ONNX files, walked and derived."""
