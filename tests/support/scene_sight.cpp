#include "tests/support/scene_sight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "scenes/draw.h"
#include "scenes/words.h"

namespace flux2::test {

namespace {

using Rgb = std::array<double, 3>;

Rgb rgb_of(int colour) {
  const Rgb8& c = scene_colours()[static_cast<size_t>(colour)].rgb;
  return {double(c[0]), double(c[1]), double(c[2])};
}
Rgb rgb_of(const uint8_t* p) { return {double(p[0]), double(p[1]), double(p[2])}; }

double distance(const Rgb& a, const Rgb& b) {
  return std::sqrt((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]) + (a[2] - b[2]) * (a[2] - b[2]));
}

// To the nearest mixture of two colours.
double distance_to_mixture(const Rgb& p, const Rgb& a, const Rgb& b) {
  double along = 0, length = 0;
  for (size_t c = 0; c < 3; ++c) {
    along += (p[c] - a[c]) * (b[c] - a[c]);
    length += (b[c] - a[c]) * (b[c] - a[c]);
  }
  const double t = length > 0 ? std::clamp(along / length, 0.0, 1.0) : 0;
  return distance(p, {a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]), a[2] + t * (b[2] - a[2])});
}

constexpr double kForeground = 62;  // the distance from the background at which something is seen

int most_frequent(const std::map<int, int>& counts) {
  return std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

// How often two pixels of the border at a step from each other have the same colour.
double agreement(const std::vector<int>& colours, int width, int height, int rim, int dx, int dy) {
  double same = 0, count = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const bool border = x < rim || y < rim || x >= width - rim || y >= height - rim;
      const int u = x + dx, v = y + dy;
      if (!border || u < 0 || v < 0 || u >= width || v >= height) continue;
      if (!(u < rim || v < rim || u >= width - rim || v >= height - rim)) continue;
      same += colours[static_cast<size_t>(y * width + x)] == colours[static_cast<size_t>(v * width + u)];
      ++count;
    }
  return count > 0 ? same / count : 1;
}

double unit_spread(Figure figure) {
  static const auto spreads = [] {
    std::array<double, kFigures> values{};
    constexpr int kSteps = 200;
    for (int f = 0; f < kFigures; ++f) {
      std::vector<uint8_t> inside;
      for (int y = 0; y < kSteps; ++y)
        for (int x = 0; x < kSteps; ++x) {
          const auto at = [](int i) { return 2.5f * (static_cast<float>(i) + 0.5f) / kSteps - 1.25f; };
          inside.push_back(distance_to(static_cast<Figure>(f), at(x), at(y)) < 0 ? 1 : 0);
        }
      values[static_cast<size_t>(f)] = whole_of(std::move(inside), kSteps, kSteps).spread * 2.5 / kSteps;
    }
    return values;
  }();
  return spreads[static_cast<size_t>(figure)];
}

// How well a figure with the area's centre and spread covers it: intersection over union.
double overlap(const Blob& blob, Figure figure, double angle) {
  // The centre of mass of a figure is not its centre; the difference is found by measuring one figure.
  struct Unit {
    double x, y;
  };
  static const auto centres = [] {
    std::array<Unit, kFigures> values{};
    constexpr int kSteps = 200;
    for (int f = 0; f < kFigures; ++f) {
      std::vector<uint8_t> inside;
      const auto at = [](int i) { return 2.5f * (static_cast<float>(i) + 0.5f) / kSteps - 1.25f; };
      for (int y = 0; y < kSteps; ++y)
        for (int x = 0; x < kSteps; ++x) inside.push_back(distance_to(static_cast<Figure>(f), at(x), at(y)) < 0 ? 1 : 0);
      const Blob whole = whole_of(std::move(inside), kSteps, kSteps);
      values[static_cast<size_t>(f)] = {2.5 * (whole.x + 0.5) / kSteps - 1.25, 2.5 * (whole.y + 0.5) / kSteps - 1.25};
    }
    return values;
  }();
  const double scale = blob.spread / unit_spread(figure);
  const Unit centre = centres[static_cast<size_t>(figure)];
  const double c = std::cos(angle), s = std::sin(angle);
  double both = 0, either = 0;
  const int reach = static_cast<int>(1.4 * scale) + 2;
  for (int y = std::max(0, static_cast<int>(blob.y) - reach); y < std::min(blob.height, static_cast<int>(blob.y) + reach); ++y)
    for (int x = std::max(0, static_cast<int>(blob.x) - reach); x < std::min(blob.width, static_cast<int>(blob.x) + reach); ++x) {
      const double u = (x - blob.x) / scale, v = (y - blob.y) / scale;
      const bool there =
          distance_to(figure, static_cast<float>(c * u + s * v + centre.x), static_cast<float>(c * v - s * u + centre.y)) < 0;
      const bool here = blob.inside[static_cast<size_t>(y * blob.width + x)] != 0;
      both += there && here;
      either += there || here;
    }
  return either > 0 ? both / either : 0;
}

// The alpha of a sprite as an area.
Blob sprite_blob(int thing, const SpriteSheet& sheet) {
  const Image& sprite = sheet.sprite(thing, 1000);
  std::vector<uint8_t> inside;
  for (size_t i = 3; i < sprite.pixels.size(); i += 4) inside.push_back(sprite.pixels[i] > 127 ? 1 : 0);
  return whole_of(std::move(inside), sprite.width, sprite.height);
}

}  // namespace

int nearest_colour(const uint8_t* rgb) {
  // Called for every pixel of an image.
  const std::vector<SceneColour>& colours = scene_colours();
  int best = 0, least = std::numeric_limits<int>::max();
  for (size_t c = 0; c < colours.size(); ++c) {
    int squares = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int difference = int{rgb[i]} - int{colours[c].rgb[i]};
      squares += difference * difference;
    }
    if (squares < least) least = squares, best = static_cast<int>(c);
  }
  return best;
}

SeenBackground see_background(const Image& image) {
  const int w = image.width, h = image.height, rim = std::max(4, std::min(w, h) / 8);
  std::map<int, int> border, band, edges[4];
  int total = 0;
  std::vector<int> colours(static_cast<size_t>(w) * static_cast<size_t>(h));
  const auto colour_at = [&](int x, int y) { return colours[static_cast<size_t>(y * w + x)]; };
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      const int colour = colours[static_cast<size_t>(y * w + x)] = nearest_colour(image.at(x, y));
      const int inset = std::min(std::min(x, w - 1 - x), std::min(y, h - 1 - y));
      if (inset < rim) ++band[colour];
      if (inset >= 3) continue;
      ++border[colour];
      ++total;
      if (x < 2) ++edges[0][colour];
      if (x >= w - 2) ++edges[1][colour];
      if (y < 2) ++edges[2][colour];
      if (y >= h - 2) ++edges[3][colour];
    }
  SeenBackground seen;
  seen.colour = seen.second = most_frequent(border);
  band.erase(seen.colour);
  const int second = band.empty() ? seen.colour : most_frequent(band);

  // Dots may lie beside the border. Their rows are then found further inside on all four sides, which an object is not.
  double dotted = 1;
  for (int side = 0; side < 4; ++side) {
    double best = 0;
    const int length = side < 2 ? h : w;
    for (int inset = 0; inset < rim; ++inset) {
      int count = 0;
      for (int i = 0; i < length; ++i) {
        const int x = side == 0 ? inset : side == 1 ? w - 1 - inset : i, y = side == 2 ? inset : side == 3 ? h - 1 - inset : i;
        count += colour_at(x, y) == second;
      }
      best = std::max(best, static_cast<double>(count) / length);
    }
    dotted = std::min(dotted, best);
  }
  const bool patterned = second != seen.colour && dotted >= 0.25;
  if (!patterned && border[seen.colour] > 0.86 * total) return seen;

  // A gradient has one colour at each of two opposite edges, and passes through mixtures.
  const auto side = [&](int e) {
    const int colour = most_frequent(edges[e]);
    double all = 0;
    for (const auto& [c, n] : edges[e]) all += n;
    return std::pair(colour, edges[e][colour] / all);
  };
  for (const bool down : {false, true}) {
    const auto [first, pure] = side(down ? 2 : 0);
    const auto [last, pure_too] = side(down ? 3 : 1);
    if (pure < 0.9 || pure_too < 0.9 || first == last) continue;
    // Upright stripes may end in two colours as well, but between them there are no mixtures.
    int mixtures = 0;
    const int length = down ? h : w;
    const Rgb a = rgb_of(first), b = rgb_of(last);
    for (int i = 0; i < length; ++i) {
      const Rgb p = rgb_of(down ? image.at(1, i) : image.at(i, 1));
      mixtures += distance(p, a) > 0.2 * distance(a, b) && distance(p, b) > 0.2 * distance(a, b);
    }
    if (mixtures < 0.4 * length) continue;
    return {ScenePattern::Gradient, first, last, down};
  }
  seen.second = second;
  // Along a stripe nothing changes; dots change in every direction. Soft edges may look like a third colour, so only two count.
  const Rgb a = rgb_of(seen.colour), b = rgb_of(second);
  std::vector<int> which;
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      const Rgb p = rgb_of(image.at(x, y));
      which.push_back(distance(p, a) < distance(p, b) ? 0 : 1);
    }
  const int step = std::max(2, std::min(w, h) / 14);
  double best = 0;
  for (const auto& [dx, dy] : {std::pair(step, 0), {0, step}, {step, step}, {step, -step}})
    best = std::max(best, agreement(which, w, h, rim, dx, dy));
  seen.pattern = best > 0.83 ? ScenePattern::Stripes : ScenePattern::Dots;
  return seen;
}

Blob whole_of(std::vector<uint8_t> inside, int width, int height) {
  Blob blob;
  blob.width = width;
  blob.height = height;
  blob.inside = std::move(inside);
  std::vector<double> columns(static_cast<size_t>(width)), rows(static_cast<size_t>(height));
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      if (blob.inside[static_cast<size_t>(y * width + x)]) {
        ++blob.area;
        blob.x += x;
        blob.y += y;
        ++columns[static_cast<size_t>(x)];
        ++rows[static_cast<size_t>(y)];
      }
  if (blob.area == 0) return blob;
  blob.x /= blob.area;
  blob.y /= blob.area;
  double square = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      if (blob.inside[static_cast<size_t>(y * width + x)]) square += (x - blob.x) * (x - blob.x) + (y - blob.y) * (y - blob.y);
  blob.spread = std::sqrt(square / blob.area);
  const auto bounds = [&](const std::vector<double>& counts, double& low, double& high) {
    double sum = 0;
    low = -1;
    for (size_t i = 0; i < counts.size(); ++i) {
      sum += counts[i];
      if (low < 0 && sum > 0.002 * blob.area) low = static_cast<double>(i);
      if (sum <= 0.998 * blob.area) high = static_cast<double>(i) + 2;
    }
    high = std::min(high, static_cast<double>(counts.size()));
  };
  bounds(columns, blob.left, blob.right);
  bounds(rows, blob.top, blob.bottom);
  return blob;
}

Blob see_foreground(const Image& image, const SeenBackground& background) {
  const Rgb a = rgb_of(background.colour), b = rgb_of(background.second);
  std::vector<uint8_t> inside;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      inside.push_back(distance_to_mixture(rgb_of(image.at(x, y)), a, b) > kForeground ? 1 : 0);
  const std::vector<Blob> parts = parts_of(whole_of(std::move(inside), image.width, image.height));
  std::vector<uint8_t> all(static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
  for (const Blob& part : parts)
    for (size_t i = 0; i < all.size(); ++i) all[i] |= part.inside[i];
  return whole_of(std::move(all), image.width, image.height);
}

Blob see_colour(const Image& image, int colour) {
  std::vector<uint8_t> inside;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) inside.push_back(nearest_colour(image.at(x, y)) == colour ? 1 : 0);
  const std::vector<Blob> parts = parts_of(whole_of(std::move(inside), image.width, image.height));
  return parts.empty() ? Blob{} : parts.front();
}

std::vector<Blob> parts_of(const Blob& blob) {
  const int w = blob.width, h = blob.height;
  std::vector<uint8_t> left = blob.inside;
  std::vector<std::vector<uint8_t>> found;
  std::vector<double> areas;
  std::vector<std::pair<int, int>> open;
  const int reach = std::max(1, std::min(w, h) / 64);  // gaps that do not separate
  for (int sy = 0; sy < h; ++sy)
    for (int sx = 0; sx < w; ++sx) {
      if (!left[static_cast<size_t>(sy * w + sx)]) continue;
      std::vector<uint8_t> part(left.size());
      double area = 0;
      open = {{sx, sy}};
      left[static_cast<size_t>(sy * w + sx)] = 0;
      while (!open.empty()) {
        const auto [x, y] = open.back();
        open.pop_back();
        part[static_cast<size_t>(y * w + x)] = 1;
        ++area;
        for (int v = std::max(0, y - reach); v <= std::min(h - 1, y + reach); ++v)
          for (int u = std::max(0, x - reach); u <= std::min(w - 1, x + reach); ++u)
            if (left[static_cast<size_t>(v * w + u)]) {
              left[static_cast<size_t>(v * w + u)] = 0;
              open.emplace_back(u, v);
            }
      }
      if (area < 0.004 * w * h) continue;
      found.push_back(std::move(part));
      areas.push_back(area);
    }
  std::vector<Blob> parts;
  for (std::vector<uint8_t>& part : found) parts.push_back(whole_of(std::move(part), w, h));
  std::sort(parts.begin(), parts.end(), [](const Blob& a, const Blob& b) { return a.area > b.area; });
  return parts;
}

int colour_of(const Image& image, const Blob& blob) {
  std::map<int, int> counts;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      if (!blob.inside.empty() && blob.inside[static_cast<size_t>(y * image.width + x)]) ++counts[nearest_colour(image.at(x, y))];
  return counts.empty() ? -1 : most_frequent(counts);
}

Figure figure_of(const Blob& blob) {
  Figure best = Figure::Circle;
  double score = -1;
  for (int f = 0; f < kFigures; ++f)
    for (const double angle : {-0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15})
      if (const double found = overlap(blob, static_cast<Figure>(f), angle); found > score) {
        score = found;
        best = static_cast<Figure>(f);
      }
  return best;
}

double radius_of(const Blob& blob, Figure figure) { return blob.spread / unit_spread(figure); }

int thing_of(const Image& image, const Blob& blob, const SpriteSheet& sheet) {
  constexpr int kGrid = 20;
  int best = -1;
  double score = 1e30;
  if (blob.area == 0) return best;
  const SeenBackground background = see_background(image);
  const Rgb behind = rgb_of(background.colour);
  const auto between = [](double low, double high, int i) { return low + (high - low) * (i + 0.5) / kGrid; };
  const auto blurred = [](const Image& from, double x, double y, double step, auto pixel) {
    Rgb sum = {};
    double count = 0;
    const int reach = std::max(0, static_cast<int>(step / 2));
    for (int v = static_cast<int>(y) - reach; v <= static_cast<int>(y) + reach; ++v)
      for (int u = static_cast<int>(x) - reach; u <= static_cast<int>(x) + reach; ++u) {
        const Rgb p = pixel(from.at(std::clamp(u, 0, from.width - 1), std::clamp(v, 0, from.height - 1)));
        for (size_t c = 0; c < 3; ++c) sum[c] += p[c];
        ++count;
      }
    for (double& s : sum) s /= count;
    return sum;
  };
  for (int thing = 0; thing < sheet.count(); ++thing) {
    const Image& sprite = sheet.sprite(thing, 1000);
    const Blob shape = sprite_blob(thing, sheet);
    // The proportions count too: a banana is not a car.
    const double ratio = std::log(((blob.right - blob.left) / (blob.bottom - blob.top)) /
                                  ((shape.right - shape.left) / (shape.bottom - shape.top)));
    double sum = 4000 * ratio * ratio * kGrid * kGrid;
    for (int j = 0; j < kGrid; ++j)
      for (int i = 0; i < kGrid; ++i) {
        const Rgb seen = blurred(image, between(blob.left, blob.right, i), between(blob.top, blob.bottom, j),
                                 (blob.right - blob.left) / kGrid, [](const uint8_t* p) { return rgb_of(p); });
        const Rgb wanted = blurred(sprite, between(shape.left, shape.right, i), between(shape.top, shape.bottom, j),
                                   (shape.right - shape.left) / kGrid, [&](const uint8_t* p) {
                                     Rgb mixed = rgb_of(p);  // premultiplied
                                     for (size_t c = 0; c < 3; ++c) mixed[c] += behind[c] * (1 - p[3] / 255.0);
                                     return mixed;
                                   });
        const double d = distance(seen, wanted);
        sum += d * d;
      }
    if (sum < score) {
      score = sum;
      best = thing;
    }
  }
  return best;
}

double radius_of_thing(const Blob& blob, int thing, const SpriteSheet& sheet) {
  const Blob shape = sprite_blob(thing, sheet);
  const double scale =
      std::max(blob.right - blob.left, blob.bottom - blob.top) / std::max(shape.right - shape.left, shape.bottom - shape.top);
  return scale * shape.width / 2;
}

}  // namespace flux2::test
