"""``python -m fomkit.costs``: rewrite `compiled` from the formulas, for developers."""

from fomkit.costs import generate

if __name__ == "__main__":
    # Not through an import of `compiled`: the command must work when that file is broken.
    target = generate.__file__.replace("generate.py", "compiled.py")
    with open(target, "w", encoding="utf-8") as file:
        file.write(generate.generate())
