#include "base/status_macros.h"
#include "worker/eval/checkpoint_model.h"
#include "worker/eval/export_model.h"

namespace tessera::worker {

absl::Status ExportCheckpoint(const CheckpointExport& request) {
  TESSERA_ASSIGN_OR_RETURN(const auto checkpoint,
                           CheckpointModel::Open(request.checkpoint, request.evaluation_scale));
  ExportSource source;
  source.parameter = [&](int parameter) { return checkpoint->Read(parameter); };
  source.tokenizer = request.tokenizer.empty() ? checkpoint->tokenizer() : request.tokenizer;
  return ExportModel(checkpoint->model(), source, request.folder, request.overwrite);
}

}  // namespace tessera::worker
