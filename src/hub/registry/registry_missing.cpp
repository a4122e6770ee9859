#include "base/error.h"
#include "hub/registry/registry.h"

namespace flux2 {

namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::InvalidArgument, "this build has no model registry: it was built without SQLite",
              "rebuild with SQLite installed; models given by path, and those in the model folders, work without a registry");
}

}  // namespace

struct Registry::Store {};

bool registry_available() { return false; }

Registry::Registry(std::filesystem::path) { refuse(); }
Registry::Registry(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

std::optional<Registry> Registry::existing(const std::filesystem::path&) { return std::nullopt; }
std::vector<ModelRecord> Registry::all() const { refuse(); }
std::optional<ModelRecord> Registry::find(std::string_view) const { refuse(); }
std::optional<std::string> Registry::key_of(std::string_view) const { refuse(); }
ModelRecord Registry::add(ModelRecord) { refuse(); }
void Registry::update(const ModelRecord&) { refuse(); }
bool Registry::remove(std::string_view) { refuse(); }
bool Registry::relate(std::string_view, std::string_view) { refuse(); }
bool Registry::unrelate(std::string_view, std::string_view) { refuse(); }
std::optional<std::string> Registry::known_hash(const std::filesystem::path&) const { refuse(); }
void Registry::remember_hash(const std::filesystem::path&, const std::string&) { refuse(); }
const std::filesystem::path& Registry::data_folder() const { refuse(); }

}  // namespace flux2
