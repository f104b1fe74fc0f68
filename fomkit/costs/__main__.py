"""``python -m fomkit.costs``: rewrite `compiled`, `compiled_methods` and `written` from the formulas."""

from fomkit.costs import generate, generate_methods

if __name__ == "__main__":
    # Not through imports of the three: the command must work when they are broken.
    texts = {
        "compiled": generate.generate,
        "compiled_methods": generate_methods.generate_methods,
        "written": generate.generate_written,
    }
    for name, text in texts.items():
        with open(generate.__file__.replace("generate.py", f"{name}.py"), "w", encoding="utf-8") as file:
            file.write(text())
