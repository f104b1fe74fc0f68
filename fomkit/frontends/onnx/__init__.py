"""Read ONNX files, walk their graphs and derive their training step."""
