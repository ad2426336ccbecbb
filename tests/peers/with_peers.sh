# Runs a Python test with the interpreter that a variable names; 77, ctest's "skipped", where there is none.
python=$(printenv "$1")
if [ ! -x "$python" ]; then
  echo "skipped: $1 is no Python; ./dev test --peers installs one"
  exit 77
fi
shift
exec "$python" "$@"
