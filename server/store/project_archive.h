#pragma once

#include <string>
#include <vector>

#include "server/store/asset_store.h"
#include "server/store/project_store.h"
#include "server/store/zip_reader.h"
#include "server/store/zip_stream.h"

// A project as one zip archive: project.json has its rows (the project, boards, elements, scenes, shots, images with tags), and
// files/ID.EXT the images. Images of other projects that it uses are in it too. Jobs and what is in the trash are not.
namespace flux2 {

std::vector<ZipStream::Entry> archive_of(const std::string& project, const AssetStore& assets);

// Stores it as a new project with new ids. Files are stored first, then all rows in one transaction, so a failure leaves nothing
// behind. An archive that is damaged or does not fit is InvalidArgument.
Project import_archive(const ZipReader& archive, AssetStore& assets, const JsonLimits& limits);

}  // namespace flux2
