// Makes one picture: embed "a red circle on a blue background" circle.png [model]
#include <app/model_choice.h>
#include <app/picture_maker.h>
#include <app/picture_writer.h>

#include <cstdio>
#include <exception>
#include <utility>

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: embed PROMPT FILE.png [MODEL]\n"), 2;
  flux2::RequestSpec spec{.prompt = argv[1], .model = argc > 3 ? argv[3] : FLUX2_BUNDLED_MODEL};
  const flux2::AppContext context;
  const flux2::ModelFiles model = choose_model(spec, context);
  const flux2::ResolvedRequest request = resolve(spec, model);  // fills in what the model likes best

  flux2::PictureMaker maker(context, model, spec);
  maker.load({&request, 1});
  flux2::PictureWriter writer(spec);
  maker.make(request, [&](const flux2::Picture& picture, flux2::GenerationRecord record) {
    writer.write(picture, std::move(record), argv[2]);
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
