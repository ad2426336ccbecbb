#!/usr/bin/env python3
"""Runs clang-tidy on the sources and remembers which were clean.

usage: clang_tidy.py --tidy PROGRAM --build DIRECTORY --clean DIRECTORY [--jobs N] [--changed-since REVISION] [FILE...]

A result is remembered under a hash of all that it follows from: the program, the rules, the compile command, and the
text of the file and of the repository's headers that it reaches. So the second run looks only at what was changed,
and at what includes what was changed. Prints the findings, a line that counts, and the files that it could not look at
because the build does not compile them (the CUDA half, unless that was configured).
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# clang-tidy and the compiler are of different versions, and a precompiled header is only for its own.
PRECOMPILED = re.compile(r" -Winvalid-pch -Xclang -include-pch -Xclang \S+ -Xclang -include -Xclang \S+")


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


def reached_by(source, generated):
    """The source and the repository's own headers that it includes, directly or not, in a fixed order."""
    reached, left = {}, [source]
    while left:
        path = left.pop()
        if path in reached:
            continue
        reached[path] = text_of(path)
        for name in INCLUDE.findall(reached[path]):
            found = next((root / name for root in (ROOT, generated) if (root / name).is_file()), None)
            if found:
                left.append(found)
    return sorted(reached)


def key_of(files, command, rules):
    digest = hashlib.sha256(rules)
    digest.update(command.replace(str(ROOT), "").encode())
    for path in files:
        digest.update(f"\0{path.name}\0{text_of(path)}".encode())
    return digest.hexdigest()


def changed_since(revision):
    """Files that differ from that revision, with those that git does not know yet."""
    commands = (["git", "diff", "--name-only", "--diff-filter=d", revision],
                ["git", "ls-files", "--others", "--exclude-standard"])
    names = [subprocess.run(c, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.split() for c in commands]
    return {ROOT / name for list_ in names for name in list_}


def sources():
    listed = subprocess.run(["git", "ls-files", "*.cc"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tidy", required=True)
    parser.add_argument("--build", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--clean", required=True, type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--changed-since")
    parser.add_argument("files", nargs="*", type=lambda p: pathlib.Path(p).resolve())
    options = parser.parse_args()

    database = json.loads((options.build / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in database:
        entry["command"] = PRECOMPILED.sub("", entry["command"])
    commands = {pathlib.Path(entry["file"]): entry["command"] for entry in database}
    adapted = options.build / "lint"
    adapted.mkdir(exist_ok=True)
    (adapted / "compile_commands.json").write_text(json.dumps(database), encoding="utf-8")
    options.clean.mkdir(parents=True, exist_ok=True)

    version = subprocess.run([options.tidy, "--version"], check=True, stdout=subprocess.PIPE).stdout
    rules = version + (ROOT / ".clang-tidy").read_bytes()
    changed = changed_since(options.changed_since) if options.changed_since else None
    keys, without_command = {}, []
    for source in options.files or sources():
        reached = reached_by(source, options.build / "gen")
        if changed is not None and not changed.intersection(reached):
            continue
        if source in commands:
            keys[source] = key_of(reached, commands[source], rules)
        else:
            without_command.append(source.relative_to(ROOT).as_posix())
    left = [source for source, key in keys.items() if not (options.clean / key).exists()]

    def check(source):
        run = subprocess.run([options.tidy, "-p", adapted, "--quiet", source], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        if run.returncode == 0:
            (options.clean / keys[source]).touch()
        return source, run

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for source, run in pool.map(check, left):
            if run.returncode != 0:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{run.stdout}", flush=True)
    print(f"clang-tidy: {len(keys)} files, {len(keys) - len(left)} known to be clean, {failed} with findings")
    if without_command:
        print(f"clang-tidy: not looked at, because {options.build.name} does not compile them: {', '.join(without_command)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
