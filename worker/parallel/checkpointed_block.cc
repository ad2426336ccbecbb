#include "worker/parallel/checkpointed_block.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <utility>

#include "worker/nn/autocast.h"

namespace tessera::worker {
namespace {

using torch::autograd::variable_list;

struct Rerun : torch::CustomClassHolder {
  Rerun(BlockBody b, double s) : body(std::move(b)), scale(s) {}
  BlockBody body;
  double scale;
};

struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<Rerun>& rerun) {
    ctx->save_for_backward({x});
    ctx->saved_data["rerun"] = c10::IValue::make_capsule(rerun);
    ctx->saved_data["autocast"] = Autocast::Enabled();
    ctx->saved_data["generator"] = at::detail::getDefaultCPUGenerator().get_state();
    return rerun->body(x, rerun->scale);
  }

  static variable_list backward(torch::autograd::AutogradContext* ctx, const variable_list& gradients) {
    const auto rerun = c10::static_intrusive_pointer_cast<Rerun>(ctx->saved_data["rerun"].toCapsule());
    const at::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor now = generator.get_state();
    generator.set_state(ctx->saved_data["generator"].toTensor());
    torch::autograd::edge_list roots;
    {
      const at::AutoGradMode grad_mode(true);
      const Autocast autocast(ctx->saved_data["autocast"].toBool());
      roots.push_back(torch::autograd::impl::gradient_edge(rerun->body(x, rerun->scale)));
    }
    generator.set_state(now);
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RunCheckpointed(const BlockBody& body, const at::Tensor& x, double branch_scale) {
  return Checkpointed::apply(x, c10::make_intrusive<Rerun>(body, branch_scale));
}

}  // namespace tessera::worker
