#include "scenes/draw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace flux2 {

namespace {

float covered(float distance) { return std::clamp(0.5f - distance, 0.0f, 1.0f); }  // distance in pixels

uint8_t mixed(uint8_t a, uint8_t b, float share) {
  return static_cast<uint8_t>(static_cast<float>(a) + (static_cast<float>(b) - static_cast<float>(a)) * share + 0.5f);
}

float box(float x, float y, float half_width, float half_height) {
  return std::max(std::abs(x) - half_width, std::abs(y) - half_height);
}

// Each figure is made of half-planes and circles: the largest of distances is that of their intersection, the smallest that of
// their union.
template <Figure kFigure>
inline float figure_distance(float x, float y) {
  if constexpr (kFigure == Figure::Circle) {
    return std::sqrt(x * x + y * y) - 0.95f;
  } else if constexpr (kFigure == Figure::Square) {
    return box(x, y, 0.82f, 0.82f);
  } else if constexpr (kFigure == Figure::Triangle) {
    constexpr float kSin60 = 0.8660254f, kInner = 0.54f;  // of the inscribed circle; the corners are twice as far away
    return std::max(y, kSin60 * std::abs(x) - 0.5f * y) - kInner;
  } else if constexpr (kFigure == Figure::Star) {
    // The five edges of a pentagon, prolonged: a point of the star is outside one of them at most.
    // The y axis points down, so the first tip points up.
    constexpr float kEdges[5][2] = {
        {0, -1}, {0.9510565f, -0.309017f}, {0.5877853f, 0.809017f}, {-0.5877853f, 0.809017f}, {-0.9510565f, -0.309017f}};
    constexpr float kInner = 0.309017f * 1.08f;
    float first = -10, second = -10;
    for (const auto& edge : kEdges) {
      const float d = edge[0] * x + edge[1] * y;
      second = std::max(second, std::min(first, d));
      first = std::max(first, d);
    }
    return second - kInner;
  } else if constexpr (kFigure == Figure::Heart) {
    // A square that stands on a corner, with half circles on its two upper sides.
    constexpr float kSide = 1.02f, kRoot = 0.70710678f;
    const float down = y - 0.06f, u = std::abs(x);
    const float square = box((u + down) * kRoot, (u - down) * kRoot, 0.5f * kSide, 0.5f * kSide);
    const float cx = u - 0.5f * kSide * kRoot, cy = down + 0.5f * kSide * kRoot;
    return std::min(square, std::sqrt(cx * cx + cy * cy) - 0.5f * kSide);
  } else if constexpr (kFigure == Figure::Diamond) {
    constexpr float kWidth = 0.72f, kHeight = 1.0f;
    const float length = std::sqrt(1 / (kWidth * kWidth) + 1 / (kHeight * kHeight));
    return (std::abs(x) / kWidth + std::abs(y) / kHeight - 1) / length;
  } else if constexpr (kFigure == Figure::Ring) {
    return std::abs(std::sqrt(x * x + y * y) - 0.74f) - 0.22f;
  } else {
    return std::min(box(x, y, 0.95f, 0.3f), box(x, y, 0.3f, 0.95f));
  }
}

// How much of the second colour a point in pixels has.
float second_share(const Fill& fill, float x, float y, float shorter) {
  const float period = fill.period * shorter;
  const auto wave = [&](float at, float shift) {
    const float t = at / period + shift;
    return t - std::floor(t) - 0.5f;  // −0.5 … 0.5
  };
  if (fill.pattern == ScenePattern::Stripes) {
    constexpr float kRoot = 0.70710678f;
    const float along = fill.direction == 0   ? x
                        : fill.direction == 1 ? y
                        : fill.direction == 2 ? kRoot * (x + y)
                                              : kRoot * (x - y);
    return covered((std::abs(wave(along, fill.shift_x)) - 0.25f) * period);
  }
  if (fill.pattern == ScenePattern::Dots) {
    const float u = wave(x, fill.shift_x), v = wave(y, fill.shift_y);
    return covered((std::sqrt(u * u + v * v) - 0.28f) * period);
  }
  return 0;
}

void paint(uint8_t* pixel, const Fill& fill, float second) {
  for (size_t c = 0; c < 3; ++c) pixel[c] = mixed(fill.rgb[c], fill.second_rgb[c], second);
}

void paint_background(const Fill& fill, Image& image) {
  const float shorter = static_cast<float>(std::min(image.width, image.height));
  // Most patterns do not change from row to row, or are one colour in a row.
  const bool by_row = (fill.pattern == ScenePattern::Stripes || fill.pattern == ScenePattern::Gradient) && fill.direction == 1;
  const bool all_equal =
      fill.pattern == ScenePattern::Plain ||
      ((fill.pattern == ScenePattern::Stripes || fill.pattern == ScenePattern::Gradient) && fill.direction == 0);
  const auto share_at = [&](int x, int y) {
    if (fill.pattern == ScenePattern::Gradient)
      return fill.direction == 0 ? static_cast<float>(x) / static_cast<float>(image.width - 1)
                                 : static_cast<float>(y) / static_cast<float>(image.height - 1);
    return second_share(fill, static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f, shorter);
  };
  for (int y = 0; y < image.height; ++y) {
    if (y > 0 && all_equal) {
      std::memcpy(image.row(y), image.row(0), image.row_bytes());
      continue;
    }
    if (by_row || fill.pattern == ScenePattern::Plain) {
      uint8_t first[3];
      paint(first, fill, share_at(0, y));
      for (int x = 0; x < image.width; ++x) std::memcpy(image.at(x, y), first, 3);
      continue;
    }
    for (int x = 0; x < image.width; ++x) paint(image.at(x, y), fill, share_at(x, y));
  }
}

struct Frame {
  float x, y, radius;            // in pixels
  int left, top, right, bottom;  // what it can touch; right and bottom are behind it
};

Frame frame_of(const SceneObject& object, const Image& image) {
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  Frame f{object.x * width, object.y * height, object.radius * std::min(width, height), 0, 0, 0, 0};
  const float reach = f.radius * 1.2f + 2;
  f.left = std::clamp(static_cast<int>(f.x - reach), 0, image.width);
  f.right = std::clamp(static_cast<int>(f.x + reach) + 1, 0, image.width);
  f.top = std::clamp(static_cast<int>(f.y - reach), 0, image.height);
  f.bottom = std::clamp(static_cast<int>(f.y + reach) + 1, 0, image.height);
  return f;
}

template <Figure kFigure>
void paint_figure(const SceneObject& object, Image& image) {
  const Frame f = frame_of(object, image);
  const float c = std::cos(object.angle) / f.radius, s = std::sin(object.angle) / f.radius;
  const float shorter = static_cast<float>(std::min(image.width, image.height));
  const bool plain = object.fill.pattern == ScenePattern::Plain;
  std::vector<float> shares(static_cast<size_t>(std::max(0, f.right - f.left)));
  for (int y = f.top; y < f.bottom; ++y) {
    const float v = static_cast<float>(y) + 0.5f - f.y;
    for (int x = f.left; x < f.right; ++x) {
      const float u = static_cast<float>(x) + 0.5f - f.x;
      shares[static_cast<size_t>(x - f.left)] = covered(figure_distance<kFigure>(c * u + s * v, c * v - s * u) * f.radius);
    }
    for (int x = f.left; x < f.right; ++x) {
      const float share = shares[static_cast<size_t>(x - f.left)];
      if (share <= 0) continue;
      uint8_t* pixel = image.at(x, y);
      Rgb8 colour = object.fill.rgb;
      // The pattern belongs to the object: it moves with it.
      if (!plain) paint(colour.data(), object.fill, second_share(object.fill, static_cast<float>(x) + 0.5f - f.x, v, shorter));
      for (size_t k = 0; k < 3; ++k) pixel[k] = mixed(pixel[k], colour[k], share);
    }
  }
}

void paint_thing(const SceneObject& object, Image& image, const SpriteSheet& sheet) {
  const Frame f = frame_of(object, image);
  const Image& sprite = sheet.sprite(object.thing, 2 * f.radius);
  const float scale = static_cast<float>(sprite.width) / (2 * f.radius);
  struct Tap {
    int first, second;  // columns or rows of the sprite; −1: outside
    float share;        // of the second
  };
  const auto tap_of = [&](int at, float centre) {
    const float t = (static_cast<float>(at) + 0.5f - centre + f.radius) * scale - 0.5f;
    const float low = std::floor(t);
    const auto inside = [&](float i) { return i >= 0 && i < static_cast<float>(sprite.width) ? static_cast<int>(i) : -1; };
    return Tap{inside(low), inside(low + 1), t - low};
  };
  std::vector<Tap> columns;
  for (int x = f.left; x < f.right; ++x) columns.push_back(tap_of(x, f.x));
  for (int y = f.top; y < f.bottom; ++y) {
    const Tap row = tap_of(y, f.y);
    if (row.first < 0 && row.second < 0) continue;
    for (int x = f.left; x < f.right; ++x) {
      const Tap& column = columns[static_cast<size_t>(x - f.left)];
      if (column.first < 0 && column.second < 0) continue;
      float sum[4] = {};
      const auto add = [&](int sx, int sy, float weight) {
        if (sx < 0 || sy < 0) return;
        const uint8_t* p = sprite.at(sx, sy);
        for (int c = 0; c < 4; ++c) sum[c] += weight * static_cast<float>(p[c]);
      };
      add(column.first, row.first, (1 - column.share) * (1 - row.share));
      add(column.second, row.first, column.share * (1 - row.share));
      add(column.first, row.second, (1 - column.share) * row.share);
      add(column.second, row.second, column.share * row.share);
      if (sum[3] <= 0) continue;
      uint8_t* pixel = image.at(x, y);
      const float kept = 1 - sum[3] / 255;
      for (int c = 0; c < 3; ++c)
        pixel[c] = static_cast<uint8_t>(std::min(255.0f, static_cast<float>(pixel[c]) * kept + sum[c] + 0.5f));
    }
  }
}

// Calls with the figure as a compile-time value, so that the loops over pixels hold one formula only.
template <class Call>
auto with_figure(Figure figure, const Call& call) {
  switch (figure) {
    case Figure::Circle: return call.template operator()<Figure::Circle>();
    case Figure::Square: return call.template operator()<Figure::Square>();
    case Figure::Triangle: return call.template operator()<Figure::Triangle>();
    case Figure::Star: return call.template operator()<Figure::Star>();
    case Figure::Heart: return call.template operator()<Figure::Heart>();
    case Figure::Diamond: return call.template operator()<Figure::Diamond>();
    case Figure::Ring: return call.template operator()<Figure::Ring>();
    case Figure::Cross: break;
  }
  return call.template operator()<Figure::Cross>();
}

}  // namespace

float distance_to(Figure figure, float x, float y) {
  return with_figure(figure, [&]<Figure kFigure>() { return figure_distance<kFigure>(x, y); });
}

Image draw_scene(const Scene& scene, int width, int height, const SpriteSheet& sheet) {
  require(width >= 8 && height >= 8, "a scene of {}×{} pixels", width, height);
  Image image(width, height, 3);
  paint_background(scene.background, image);
  for (const SceneObject& object : scene.objects) {
    if (object.is_thing()) {
      require(object.thing < sheet.count(), "thing {} of {}", object.thing, sheet.count());
      paint_thing(object, image, sheet);
    } else {
      with_figure(object.figure, [&]<Figure kFigure>() { paint_figure<kFigure>(object, image); });
    }
  }
  return image;
}

}  // namespace flux2
