#include "scenes/edits.h"

#include <fmt/format.h>

#include <algorithm>

#include "scenes/captions.h"
#include "scenes/words.h"

namespace flux2 {

namespace {

// One scene with one object, or with two.
Scene base_scene(SceneRandom& random, SceneOptions options, bool couple) {
  options.some_share = 0;
  options.couple_share = couple ? 1 : 0;
  return random_scene(random, options);
}

// "the circle", "the red circle", "the cat"
std::string the(const SceneObject& object, SceneRandom& random, const SpriteSheet& sheet) {
  if (object.is_thing()) return "the " + usual_word(sheet.words(object.thing), random);
  const std::string figure = usual_word(words_of(object.figure), random);
  return random.chance(0.6) ? "the " + figure : fmt::format("the {} {}", colour_word(object.fill.colour, random), figure);
}

// "top left" of "at the top left"
std::string corner_words(Place place) {
  const std::string words = words_of(place).front();
  return words.substr(words.find("the ") + 4);
}

std::string said_one_of(std::vector<std::string> forms, SceneRandom& random) { return as_sentence(random.one_of(forms), random); }

int other_thing(const SceneObject& old, SceneRandom& random, int things) {
  return (old.thing + 1 + random.below(things - 1)) % things;
}

// A second object with room around it.
bool add_object(Scene& scene, SceneObject object, SceneRandom& random, const SceneOptions& options) {
  for (int tries = 0; tries < 40; ++tries) {
    object.place = random_place(random);
    set_centre(object, random, options.aspect);
    const bool free = std::all_of(scene.objects.begin(), scene.objects.end(), [&](const SceneObject& other) {
      return distance_between(object, other, options.aspect) > 1.1f * (object.radius + other.radius);
    });
    if (!free) continue;
    scene.objects.push_back(object);
    return true;
  }
  return false;
}

SceneObject small_object(SceneRandom& random, const SceneOptions& options, const Scene& scene) {
  SceneObject object = random_object(random, options, colours_in(scene));
  object.size = SizeWord::Small;
  set_radius(object, random);
  object.radius *= 1.15f;
  return object;
}

bool same_kind(const SceneObject& a, const SceneObject& b) {
  return a.is_thing() == b.is_thing() && (a.is_thing() ? a.thing == b.thing : a.figure == b.figure);
}

void apply_recolour(SceneEdit& edit, SceneRandom& random) {
  SceneObject& object = edit.target.objects[edit.object];
  const int colour = random_colour(random, colours_in(edit.source));
  object.fill.colour = colour;
  object.fill.rgb = scene_colours()[static_cast<size_t>(colour)].rgb;
}

void apply_background(SceneEdit& edit, SceneRandom& random, const SceneOptions& options) {
  SceneOptions plain = options;
  plain.free_colours = 0;
  do {
    edit.target.background = random_background(random, plain);
  } while (!std::all_of(edit.source.objects.begin(), edit.source.objects.end(), [&](const SceneObject& object) {
    if (object.is_thing()) return true;
    for (const int mine : colours_of(object.fill))
      for (const int other : colours_of(edit.target.background))
        if (!are_apart(mine, other)) return false;
    return true;
  }) || !are_apart(edit.target.background.colour, edit.source.background.colour));
}

void apply_resize(SceneEdit& edit, SceneRandom& random, const SceneOptions& options) {
  SceneObject& object = edit.target.objects[edit.object];
  // From small to large or back, so that it is seen; the centre stays.
  const bool larger = object.size != SizeWord::Large;
  edit.source.objects[edit.object].size = object.size = larger ? SizeWord::Small : SizeWord::Large;
  SceneObject& before = edit.source.objects[edit.object];
  before.place = {};
  set_radius(before, random);
  set_centre(before, random, options.aspect);
  object = before;
  object.size = larger ? SizeWord::Large : SizeWord::Small;
  set_radius(object, random);
}

}  // namespace

SceneEdit random_edit(EditKind kind, SceneRandom& random, const SceneOptions& options, const SpriteSheet& sheet, int wordings) {
  SceneEdit edit;
  edit.kind = kind;
  const bool couple =
      (kind == EditKind::Recolour || kind == EditKind::Remove || kind == EditKind::Background || kind == EditKind::Replace) &&
      random.chance(kind == EditKind::Remove ? 0.75 : 0.4);
  do {
    edit.source = base_scene(random, options, couple);
    edit.object = static_cast<size_t>(random.below(static_cast<int>(edit.source.objects.size())));
  } while (kind == EditKind::Recolour && edit.source.objects[edit.object].is_thing());
  if (kind == EditKind::Add)
    for (SceneObject& object : edit.source.objects) {
      object.size = SizeWord::Medium;
      set_radius(object, random);
      set_centre(object, random, options.aspect);
    }
  edit.target = edit.source;
  SceneObject& changed = edit.target.objects[edit.object];
  switch (kind) {
    case EditKind::Recolour: apply_recolour(edit, random); break;
    case EditKind::Background: apply_background(edit, random, options); break;
    case EditKind::Add: {
      SceneObject added = small_object(random, options, edit.source);
      while (same_kind(added, changed)) added = small_object(random, options, edit.source);
      if (!add_object(edit.target, added, random, options)) {
        // A middle of the picture that is taken leaves the corners.
        added.place = {0, 0};
        set_centre(added, random, options.aspect);
        edit.source.objects[0].place = edit.target.objects[0].place = {2, 2};
        set_centre(edit.source.objects[0], random, options.aspect);
        edit.target.objects[0] = edit.source.objects[0];
        edit.target.objects.push_back(added);
      }
      edit.object = edit.target.objects.size() - 1;
      break;
    }
    case EditKind::Remove: edit.target.objects.erase(edit.target.objects.begin() + static_cast<ptrdiff_t>(edit.object)); break;
    case EditKind::Move: {
      const Place from = changed.place;
      while (changed.place == from) changed.place = random_place(random);
      set_centre(changed, random, options.aspect);
      break;
    }
    case EditKind::Replace: {
      const SceneObject old = changed;
      if (old.is_thing() && options.things > 1 && random.chance(0.6)) {
        changed.thing = other_thing(old, random, options.things);
      } else {
        std::vector<int> taken = colours_in(edit.source);
        do {
          changed = random_object(random, options, taken);
        } while (same_kind(changed, old));
        changed.size = old.size;
        changed.place = old.place;
        changed.x = old.x;
        changed.y = old.y;
        changed.radius = old.radius;
      }
      break;
    }
    case EditKind::Resize: apply_resize(edit, random, options); break;
  }
  if (edit.target.objects.size() != 2 && edit.target.kind == Scene::Couple) edit.target.kind = Scene::One;

  for (int i = 0; i < wordings; ++i) {
    const SceneObject& before = kind == EditKind::Add ? edit.target.objects[edit.object] : edit.source.objects[edit.object];
    const std::string what = the(before, random, sheet);
    const auto say = [&](std::vector<std::string> forms) { edit.instructions.push_back(said_one_of(std::move(forms), random)); };
    switch (kind) {
      case EditKind::Recolour: {
        const std::string colour = colour_word(edit.target.objects[edit.object].fill.colour, random);
        say({fmt::format("make {} {}", what, colour), fmt::format("change {} to {}", what, colour),
             fmt::format("turn {} {}", what, colour), fmt::format("change the color of {} to {}", what, colour)});
        break;
      }
      case EditKind::Background: {
        const std::string words = background_words(edit.target.background, random);
        if (edit.target.background.pattern == ScenePattern::Plain && random.chance(0.6)) {
          const std::string colour = colour_word(edit.target.background.colour, random);
          say({fmt::format("make the background {}", colour), fmt::format("change the background to {}", colour)});
        } else {
          say({fmt::format("change the background to {}", words), fmt::format("put it on {}", words)});
        }
        break;
      }
      case EditKind::Add: {
        const std::string noun = with_article(noun_of(before, random, sheet));
        say({fmt::format("add {} {}", noun, usual_word(words_of(before.place), random)),
             fmt::format("put {} {}", noun, usual_word(words_of(before.place), random))});
        break;
      }
      case EditKind::Remove: say({"remove " + what, "delete " + what, "take " + what + " away"}); break;
      case EditKind::Move: {
        const Place to = edit.target.objects[edit.object].place;
        say({fmt::format("move {} to the {}", what, corner_words(to)), fmt::format("put {} {}", what, words_of(to).front())});
        break;
      }
      case EditKind::Replace: {
        const std::string noun = with_article(noun_of(edit.target.objects[edit.object], random, sheet));
        say({fmt::format("replace {} with {}", what, noun), fmt::format("turn {} into {}", what, noun),
             fmt::format("change {} to {}", what, noun)});
        break;
      }
      case EditKind::Resize:
        if (edit.target.objects[edit.object].size == SizeWord::Large)
          say({"make " + what + " larger", "make " + what + " bigger"});
        else say({"make " + what + " smaller", "shrink " + what});
        break;
    }
  }
  return edit;
}

SceneBlend random_blend(SceneRandom& random, const SceneOptions& options, const SpriteSheet& sheet, int wordings) {
  SceneBlend blend;
  blend.background = random.chance(0.35);
  blend.first = base_scene(random, options, false);
  if (blend.background) {
    SceneEdit swap;
    swap.source = swap.target = blend.first;
    apply_background(swap, random, options);
    blend.target = swap.target;
    blend.second = base_scene(random, options, false);
    blend.second.background = swap.target.background;
    // An object that the new background would hide.
    for (SceneObject& object : blend.second.objects)
      if (!object.is_thing()) object.fill = plain_fill(random_colour(random, colours_of(blend.second.background)));
  } else {
    SceneObject& host = blend.first.objects[0];
    host.size = SizeWord::Medium;
    set_radius(host, random);
    set_centre(host, random, options.aspect);
    do {
      blend.second = base_scene(random, options, false);
      blend.second.objects[0] = small_object(random, options, blend.first);
    } while (same_kind(blend.second.objects[0], host));
    SceneObject& guest = blend.second.objects[0];
    if (!guest.is_thing()) blend.second.background = plain_fill(random_colour(random, colours_of(guest.fill)));
    guest.place = random_place(random);
    set_centre(guest, random, options.aspect);
    blend.target = blend.first;
    if (!add_object(blend.target, guest, random, options)) {
      host.place = {2, 2};
      set_centre(host, random, options.aspect);
      blend.target = blend.first;
      SceneObject moved = guest;
      moved.place = {0, 0};
      set_centre(moved, random, options.aspect);
      blend.target.objects.push_back(moved);
    }
  }
  for (int i = 0; i < wordings; ++i) {
    if (blend.background) {
      blend.instructions.push_back(
          said_one_of({"use the background of image 2", "use the background of the second image",
                       fmt::format("put {} on the background of image 2", the(blend.first.objects[0], random, sheet))},
                      random));
      continue;
    }
    const std::string what = the(blend.second.objects[0], random, sheet);
    const std::string place = usual_word(words_of(blend.target.objects.back().place), random);
    blend.instructions.push_back(said_one_of({fmt::format("put {} of image 2 into image 1 {}", what, place),
                                              fmt::format("add {} from the second image {}", what, place)},
                                             random));
  }
  return blend;
}

}  // namespace flux2
