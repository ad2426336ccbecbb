// Sub-commands of tessera-worker that need no scheduler. argv[0] is the
// sub-command's name. Each returns the process's exit code and writes errors to stderr, the
// last line being the reason: 0 done, 1 failed, 2 bad command line, 3 invalid argument
// (will fail again whatever is retried).
#pragma once

namespace tessera::worker {

// prepare --input FILE... --out DIR: text to token shards and a tokenizer.
int RunPrepare(int argc, char** argv);
// info PATH: what a data set holds.
int RunInfo(int argc, char** argv);
// describe: a TrainingJobSpec as protobuf JSON on stdin, its ModelShape on stdout.
int RunDescribe(int argc, char** argv);
// eval --model DIR [--data PATTERN] [--task NAME=FILE]...: loss, perplexity, bits per byte; accuracy on
// tasks.
int RunEval(int argc, char** argv);
// generate --model DIR --prompt TEXT: continues a text.
int RunGenerate(int argc, char** argv);
// export --checkpoint DIR --out DIR: the assembled model in the Hugging Face layout.
int RunExport(int argc, char** argv);

}  // namespace tessera::worker
