#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "image/image.h"
#include "server/api/api_context.h"
#include "server/http/errors.h"
#include "server/http/exchange.h"
#include "server/http/router.h"

namespace flux2 {

// The file of the registered upscaler of that name; nothing if there is none. Clients name no files.
std::optional<std::filesystem::path> registered_upscaler(const std::string& name, const ApiContext& api);

// An image enlarged by a network, by its scale.
using EnlargeImage = std::function<Image(const std::filesystem::path& upscaler, const Image& image)>;

// Answers later with what `answer` returns, on the thread that enlarges images. Throws HttpError 429 `queue_full` if too many
// wait, and 501 if this server has no such thread.
void answer_when_enlarged(ApiContext& api, const Exchange& exchange, Family family,
                          std::function<HttpResponse(const EnlargeImage&)> answer);

// POST /api/v1/upscale.
void add_upscale_routes(Router& router, ApiContext& api);

}  // namespace flux2
