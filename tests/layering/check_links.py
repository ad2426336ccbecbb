#!/usr/bin/env python3
"""Checks that what the documents link to is there, and prints `N links, N dead`.

Looks at relative links of every Markdown file: the file has to be there, and the heading too if the
link names one.
"""
import functools
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\[[^\]^]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@functools.cache
def anchors_of(path):
    """The names that a heading gives itself on GitHub."""
    found = set()
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#{1,6}\s+(.+?)\s*$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title).lower()).replace(" ", "-")
        unique, n = name, 0
        while unique in found:
            n += 1
            unique = f"{name}-{n}"
        found.add(unique)
    return found


def links_of(path):
    text = path.read_text(encoding="utf-8")
    # Code is blanked, not cut out, so that lines keep their numbers.
    text = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text)
    for pattern in (LINK, DEFINITION):
        for match in pattern.finditer(text):
            if not re.match(r"[a-z][a-z0-9+.-]*:|//", match.group(1)):
                yield text.count("\n", 0, match.start()) + 1, urllib.parse.unquote(match.group(1))


def dead(path, link):
    name, _, anchor = link.partition("#")
    target = (ROOT / name.lstrip("/") if name.startswith("/") else path.parent / name) if name else path
    if not target.exists():
        return "is not there"
    if anchor and target.suffix == ".md" and anchor not in anchors_of(target):
        return "has no such heading"
    return None


def main():
    links = wrong = 0
    for path in sorted(ROOT.rglob("*.md")):
        if path.relative_to(ROOT).parts[0] == "build":
            continue
        for line, link in links_of(path):
            links += 1
            complaint = dead(path, link)
            if complaint:
                wrong += 1
                print(f"{path.relative_to(ROOT)}:{line}: {link} {complaint}")
    print(f"{links} links, {wrong} dead")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
