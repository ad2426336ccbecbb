# Runs a Python test where PyTorch and transformers are; 77, ctest's "skipped", where they are not.
if [ ! -x "${TESSERA_PEERS_PYTHON:-}" ]; then
  echo "skipped: TESSERA_PEERS_PYTHON is no Python; ./dev test --peers installs one"
  exit 77
fi
exec "$TESSERA_PEERS_PYTHON" "$@"
