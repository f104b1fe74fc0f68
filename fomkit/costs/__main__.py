"""``python -m fomkit.costs``: rewrite `compiled` and `written` from the formulas, for developers."""

from fomkit.costs import generate

if __name__ == "__main__":
    # Not through imports of the two: the command must work when they are broken.
    for name, text in (("compiled", generate.generate()), ("written", generate.generate_written())):
        with open(generate.__file__.replace("generate.py", f"{name}.py"), "w", encoding="utf-8") as file:
            file.write(text)
