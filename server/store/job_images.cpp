#include "server/store/job_images.h"

namespace flux2 {

std::optional<DroppedImage> drop_job_image(SqlDatabase& database, const std::string& job, int index) {
  return database.writing([&](SqlConnection& sql) -> std::optional<DroppedImage> {
    DroppedImage dropped;
    {
      SqlStatement row = sql.prepare("SELECT asset FROM job_images WHERE job = ? AND idx = ?");
      if (!row.bind(std::string_view(job)).bind(int64_t{index}).step()) return std::nullopt;
      dropped.asset = row.text(0);
    }
    sql.prepare("DELETE FROM job_images WHERE job = ? AND idx = ?").bind(std::string_view(job)).bind(int64_t{index}).run();
    dropped.is_used =
        sql.prepare("SELECT 1 FROM job_images WHERE asset = ? LIMIT 1").bind(std::string_view(dropped.asset)).step();
    return dropped;
  });
}

}  // namespace flux2
