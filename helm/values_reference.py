"""Writes the reference of the chart's values as Markdown, from helm/tessera/values.yaml: the comment that begins
with `# --` above a value describes it. Fails where a value has none."""
import pathlib
import re

VALUES = pathlib.Path(__file__).parent / "tessera/values.yaml"


def entries(lines):
    """Path, default and description of each value; a value of several lines is a group and is not listed."""
    path, comment = [], []
    for number, line in enumerate(lines):
        match = re.match(r"^(\s*)([\w]+):\s*(.*)$", line)
        text = line.strip()
        if text.startswith("#"):
            if text.startswith("# -- "):
                comment = [text[5:]]
            elif comment:
                comment.append(text[2:])
            continue
        if not match:
            comment = []
            continue
        depth = len(match[1]) // 2
        path = path[:depth] + [match[2]]
        group = not match[3]
        if group and not comment:
            continue
        if not comment:
            raise SystemExit(f"values.yaml:{number + 1}: {'.'.join(path)} has no description")
        default = match[3]
        if group:
            children = [c.strip() for c in lines[number + 1:number + 3] if c.startswith(" " * (2 * depth + 2))]
            default = "; ".join(children)
            lines[number + 1:number + 1 + len(children)] = [""] * len(children)
        yield ".".join(path), default, " ".join(comment)
        comment = []


def main():
    print("# Values of the chart\n\nMade from `helm/tessera/values.yaml` by `helm/values_reference.py`.\n")
    print("| value | default | |\n|---|---|---|")
    for path, default, text in entries(VALUES.read_text().splitlines()):
        print(f"| `{path}` | `{default}` | {text} |".replace("`` |", "|"))


if __name__ == "__main__":
    main()
