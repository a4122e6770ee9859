#include "hub/open_adapter.h"

#include "hub/recognise.h"

namespace flux2 {

std::shared_ptr<const Adapter> open_adapter(const AdapterChoice& choice, const Flux2Config& config, const Log& log) {
  require(recognise(choice.path, log), ComponentKind::Adapter);
  const auto adapter = std::make_shared<Adapter>(read_adapter(choice.path, log), config, choice.layers);
  const auto& unmatched = adapter->unmatched();
  if (!unmatched.empty())
    log.warn("{}: {} layers are not in this model, the first is {}", choice.path.string(), unmatched.size(), unmatched[0]);
  if (choice.strength < -2 || choice.strength > 2)
    log.warn("{}: a strength of {} is unusual", choice.path.string(), choice.strength);
  return adapter;
}

}  // namespace flux2
