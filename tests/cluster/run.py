"""Runs the cases of the modules named on the command line in the order in which they stand, and counts them."""
import importlib
import signal
import sys
import time
import traceback

from kube import show_cluster


def cases(test):
    return [name for name in vars(type(test)) if not name.startswith("_") and name not in ("prepare", "finish")]


def passes(label, act):
    start = time.monotonic()
    try:
        act()
    except Exception:  # the next case may still say something
        print(f"FAIL  {label}\n{traceback.format_exc()}", flush=True)
        show_cluster()
        return False
    print(f"ok    {label} ({time.monotonic() - start:.0f} s)", flush=True)
    return True


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was begun is undone
    results = []
    for module in sys.argv[1:]:
        test = importlib.import_module(module).TESTS()
        try:
            if not passes(f"{module}: prepare", getattr(test, "prepare", lambda: None)):
                results.append(False)
                continue
            results += [passes(f"{module}: {name.replace('_', ' ')}", getattr(test, name)) for name in cases(test)]
        finally:
            if not passes(f"{module}: finish", getattr(test, "finish", lambda: None)):
                results.append(False)
    print(f"{results.count(True)} passed, {results.count(False)} failed", flush=True)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
