#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/http/errors.h"
#include "server/store/asset_store.h"
#include "server/store/element_store.h"

// How the elements of a prompt become text, references and adapters. Two steps: find_elements() reads the prompt before the
// request is checked; compose() writes the final prompt once the request's own images are stored.
namespace flux2 {

struct ElementOptions {
  enum class Scope { Project, Shared, All } scope = Scope::Shared;                     // where triggers are looked for
  enum class Text { NameAndDescription, Name, Keep } text = Text::NameAndDescription;  // what replaces a trigger
  bool scan = true;                                                                    // look for triggers at all
  std::optional<bool> number_refs = std::nullopt;  // write "the person in image 2"; absent: if two elements have images
};

// A trigger in the prompt that means an element.
struct ElementMatch {
  size_t element = 0;           // its place in ElementsInPrompt::elements
  size_t begin = 0, end = 0;    // bytes of the prompt
  int64_t start = 0, stop = 0;  // characters
};

struct ElementsInPrompt {
  std::vector<Element> elements;      // in the order in which they appear; those without a trigger in the prompt at the end
  std::vector<ElementMatch> matches;  // in the order of the prompt
  std::vector<Element> suggestions;   // of other projects, whose triggers the prompt has
  std::vector<std::vector<std::string>> images;  // of each element: the assets that its jobs get
  std::vector<std::string> warnings;

  bool is_empty() const { return elements.empty() && suggestions.empty() && warnings.empty(); }
  bool has_images() const;
};

// `named`: elements that the request names itself, by id, name or trigger. What is wrong is added to `problems`.
ElementsInPrompt find_elements(const std::string& prompt, const std::vector<std::string>& named, const std::string& project,
                               const ElementOptions& options, AssetStore& assets, std::vector<HttpError::FieldProblem>& problems);

struct ComposedPrompt {
  std::string prompt;
  struct Reference {
    std::string asset;
    std::string element;  // id; empty: the request has it itself
  };
  std::vector<Reference> references;
  std::vector<std::string> warnings;  // about references that were left out
};

// `own`: assets that the request itself has as references. `first_number`: the number of the first reference in prompts.
ComposedPrompt compose(const std::string& prompt, const ElementsInPrompt& found, const std::vector<std::string>& own,
                       const ElementOptions& options, int64_t most_references, int first_number, const AssetStore& assets);

// The prompt with triggers replaced by names and descriptions, for texts that get no references.
std::string with_names(const std::string& prompt, const ElementsInPrompt& found);

}  // namespace flux2
