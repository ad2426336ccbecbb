"""Runs the cases of the modules named on the command line in the order in which they stand, and counts them."""
import importlib
import sys
import time
import traceback


def cases(test):
    return [name for name in vars(type(test)) if not name.startswith("_") and name not in ("prepare", "finish")]


def main():
    passed = failed = 0
    for module in sys.argv[1:]:
        test = importlib.import_module(module).TESTS()
        try:
            getattr(test, "prepare", lambda: None)()
            for name in cases(test):
                start = time.monotonic()
                try:
                    getattr(test, name)()
                    passed += 1
                    print(f"ok    {module}: {name.replace('_', ' ')} ({time.monotonic() - start:.0f} s)", flush=True)
                except Exception:  # the next case may still say something
                    failed += 1
                    print(f"FAIL  {module}: {name.replace('_', ' ')}\n{traceback.format_exc()}", flush=True)
        finally:
            getattr(test, "finish", lambda: None)()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
